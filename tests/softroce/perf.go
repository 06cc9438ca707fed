//go:build linux

package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

type perfOptions struct {
	Options
	Rounds   int
	Rmabench string
	Strict   bool
}

func parsePerf(args []string, stderr io.Writer) (perfOptions, error) {
	o := perfOptions{}
	fs := flag.NewFlagSet("perftest", flag.ContinueOnError)
	fs.SetOutput(stderr)
	o.common(fs)
	o.Topology = "one"
	fs.IntVar(&o.Rounds, "rounds", 5, "how often each pair is measured")
	fs.StringVar(&o.Rmabench, "rmabench", "bin/rmabench", "our `program`; measured only if it is there")
	fs.BoolVar(&o.Strict, "strict", false, "exit code 1 if a goal is missed")
	fs.DurationVar(&o.Timeout, "timeout", 15*time.Minute, "time for everything")
	if err := parseFlags(fs, args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, usagef("unexpected argument %q", fs.Arg(0))
	}
	if o.Rounds < 1 {
		return o, usagef("-rounds %d: want at least 1", o.Rounds)
	}
	return o, o.check()
}

// cmdPerf is `softroce perftest`: it measures both programs in turns, in one boot of one
// guest, because only figures of one boot can be compared.
func cmdPerf(ctx context.Context, args []string) (int, error) {
	o, err := parsePerf(args, os.Stderr)
	if err != nil {
		return 0, err
	}
	if err := requirePackages("perf"); err != nil {
		return harnessFailure, err
	}
	ours, err := filepath.Abs(o.Rmabench)
	if err != nil {
		return harnessFailure, err
	}
	if _, err := os.Stat(ours); err != nil {
		say("%s is not there: measuring perftest alone (make build makes it)", o.Rmabench)
		ours = ""
	}
	s, err := openSession(ctx, o.Options)
	if err != nil {
		return harnessFailure, err
	}
	// this binary, started inside the guest, measures
	step := Step{Argv: []string{s.self, insidePerf, s.kind, strconv.Itoa(o.Rounds), strconv.FormatBool(o.Strict), ours}}
	plan, err := s.plan("one", "", []Step{step})
	if err != nil {
		return harnessFailure, err
	}
	results, err := s.run(ctx, plan, o.Timeout, os.Stdout, os.Stderr)
	if err != nil {
		return harnessFailure, err
	}
	return combine(results), nil
}

// insidePerf is the hidden command that measures inside the guest.
const insidePerf = "measure-inside"

// cmdInsidePerf runs where the devices are.
func cmdInsidePerf(ctx context.Context, args []string) (int, error) {
	if len(args) != 4 || os.Getenv("RMA_SOFTROCE") == "" {
		return 0, usagef("%s is started by perftest, inside", insidePerf)
	}
	kind, ours := args[0], args[3]
	rounds, err := strconv.Atoi(args[1])
	if err != nil {
		return 0, usagef("rounds: %v", err)
	}
	m, err := newMeter(kind, ours)
	if err != nil {
		return harnessFailure, err
	}
	samples := make([][]sample, len(comparisons))
	for r := range rounds {
		for i, c := range comparisons {
			s, err := m.measure(ctx, c, r%2 == 1)
			if err != nil {
				return 1, err
			}
			samples[i] = append(samples[i], s)
		}
		fmt.Fprintf(os.Stderr, "round %d of %d done\n", r+1, rounds)
	}
	sums, met := make([]summary, 0, len(comparisons)), true
	for i, c := range comparisons {
		sums = append(sums, summarise(c, samples[i]))
		met = met && sums[i].Met
	}
	fmt.Printf("\nrmabench beside perftest, one boot of %s, median of %d rounds\n", kind, rounds)
	if err := printTable(os.Stdout, sums); err != nil {
		return harnessFailure, err
	}
	if out := os.Getenv("RMA_SOFTROCE_OUT"); out != "" {
		b, err := json.MarshalIndent(sums, "", " ")
		if err == nil {
			err = os.WriteFile(filepath.Join(out, "perftest.json"), append(b, '\n'), 0o644)
		}
		if err != nil {
			return harnessFailure, err
		}
	}
	if args[2] == "true" && !met {
		return 1, nil
	}
	return 0, nil
}
