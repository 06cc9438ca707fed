//go:build linux

package main

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// benchOptions are the flags of commands that run rmabench in a guest.
type benchOptions struct {
	Options
	sizes, ops string // declared by the command, which has its own defaults
	rounds     int
	time       time.Duration
}

// flags returns the flags of a command that they have in common.
func (o *benchOptions) flags(command, topology string, rounds int) *flag.FlagSet {
	o.Topology = topology
	fs := flag.NewFlagSet(command, flag.ContinueOnError)
	o.common(fs)
	fs.IntVar(&o.rounds, "rounds", rounds, "number of repetitions")
	fs.DurationVar(&o.time, "time", 200*time.Millisecond, "time of a series")
	fs.DurationVar(&o.Timeout, "timeout", time.Hour, "time for everything, boot included")
	return fs
}

// argv returns the command line of a subcommand of bench, rmabench.
func (o *benchOptions) argv(bench, subcommand, fabric string) []string {
	return []string{bench, subcommand, "-q", "--fabric", fabric, "--format", "json", "--sizes", o.sizes,
		"--rounds", strconv.Itoa(o.rounds), "--time", o.time.String()}
}

// runBench builds rmabench, runs the steps that use it in one boot, and returns the results, which
// it also writes to a file of that name in the output directory.
func runBench(ctx context.Context, o Options, file string, steps func(bench string) ([]Step, error)) (lines []string, code int, err error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return nil, harnessFailure, err
	}
	s, built, err := openBuilding(ctx, o)
	if err != nil {
		return nil, harnessFailure, err
	}
	defer built.Close()
	bin := built.Path
	bench := filepath.Join(bin, "rmabench")
	if err := goTool(ctx, root, "build", "-o", bench, "./cmd/rmabench"); err != nil {
		return nil, harnessFailure, err
	}
	list, err := steps(bench)
	if err != nil {
		return nil, 0, err
	}
	plan, err := s.plan(o.Topology, "", list)
	if err != nil {
		return nil, harnessFailure, err
	}
	w := &resultLines{out: os.Stdout}
	results, err := s.run(ctx, plan, o.Timeout, w, os.Stderr)
	if err == nil {
		err = w.write(o.Out, file)
	}
	if err != nil {
		return nil, harnessFailure, err
	}
	return w.lines, combine(results), nil
}
