package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/session"
)

// rendezvousFlags are the flags of rendezvous.
type rendezvousFlags struct {
	outFlags
	partnerFlags
	fabric, sizes, mode string
	rounds, window      int
	time                time.Duration
	pin, valid, check   bool
}

const rendezvousSizes = "64K:16M"

func rendezvousCommand(s streams) *cobra.Command {
	f := &rendezvousFlags{}
	cmd := &cobra.Command{
		Use: "rendezvous", Short: "Compare large messages with raw reads of the link", Args: noArgs,
		Long: `Measure, in alternation within one run and with the same window, the bandwidth of

  messages   sent from rank 0 and fetched by rank 1 (--mode scatter), and of
  raw reads  by rank 0 from rank 1, directly over the link

and print their ratio: the cost of announcing, matching and ending a transfer. Raw
reads are measured twice in every round; the difference between the two is the noise.`,
		Example: `  rmabench rendezvous --fabric shm
  rmabench rendezvous --fabric tcp --sizes 1M --rounds 15
  rmabench rendezvous --fabric verbs --format json      # in a VM
  rmabench rendezvous --connect a:7471 --check`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req, err := f.request()
			if err != nil {
				return usage(err)
			}
			return f.run(cmd.Context(), s, req)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.fabric, "fabric", "auto", "shm, tcp, verbs, or auto: the first that works between the ranks")
	fl.StringVar(&f.sizes, "sizes", rendezvousSizes, "message sizes")
	fl.StringVar(&f.mode, "mode", "scatter", "mode of the messages: "+strings.Join(bench.Modes, ", "))
	fl.IntVar(&f.window, "window", 16, "messages, and reads, kept outstanding")
	fl.IntVar(&f.rounds, "rounds", 7, "number of rounds")
	fl.DurationVar(&f.time, "time", 100*time.Millisecond, "time per size, round and side")
	f.outFlags.flags(fl, "table or json (one object per line)")
	f.partnerFlags.flags(fl, "measure")
	fl.BoolVar(&f.pin, "pin", true, "pin each rank to its own processor")
	fl.BoolVar(&f.valid, "validate", false, "check every byte received (the results include the time for this)")
	fl.BoolVar(&f.check, "check", false, fmt.Sprintf("exit code 1 if a ratio is below %v beyond the noise", bench.RendezvousGoal))
	return cmd
}

// request builds the request from the flags; its errors are usage errors.
func (f *rendezvousFlags) request() (req bench.Request, err error) {
	if err := checkFabricAndFormat(f.fabric, &f.outFlags, rowFormats); err != nil {
		return req, err
	}
	if f.rounds <= 0 || f.time <= 0 || f.window <= 0 {
		return req, errors.New("--rounds, --time and --window: want positive values")
	}
	sizes, err := bench.ParseSizes(f.sizes)
	if err != nil {
		return req, fmt.Errorf("--sizes: %w", err)
	}
	req = bench.RendezvousRequest(f.fabric, bench.Plan{Mode: f.mode, Size: sizes, Time: f.time, Window: f.window, Count: f.rounds, Validate: f.valid})
	req.Pin = f.pin
	return req, req.Check()
}

// run measures and writes the results.
func (f *rendezvousFlags) run(ctx context.Context, s streams, req bench.Request) error {
	if _, silent := f.inJob(); silent {
		return shown(session.InJob(ctx, req, nil)) // this rank has no results to write
	}
	rs, err := gather(f.bar(s), req.Points(), pointText, func(emit func(bench.Result) error) error {
		return measure(ctx, s, req, &f.partnerFlags, emit)
	})
	if err != nil {
		return err
	}
	rows, err := bench.BesideReads(rs)
	if err != nil {
		return err
	}
	if err := writeRows(&f.outFlags, s, rows, bench.WriteBeside); err != nil {
		return err
	}
	if f.check && slices.ContainsFunc(rows, func(b bench.Beside) bool { return !b.Reached() }) {
		return errSilent // the output contains the reason
	}
	return nil
}
