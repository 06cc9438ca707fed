package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/session"
)

// railsFlags are the flags of rails.
type railsFlags struct {
	outFlags
	req   bench.RailsRequest
	sizes string
}

func railsCommand(s streams) *cobra.Command {
	f := &railsFlags{}
	cmd := &cobra.Command{
		Use: "rails", Short: "Measure puts, gets and messages that are divided over several links", Args: startsRanks,
		Long: `Measure the bandwidth of puts, gets and messages between two ranks that this command starts
on this host, over all of the links together (RMA_RAILS) and over each of them alone, in
turn. "recv" asks for each message. The n-th link of rank 0 is connected with the n-th of
rank 1; both must be able to reach each other, which on one host takes several networks:
"make rails" makes them in a guest.

--format json writes a line for each operation and size: mb_s over all links, alone_mb_s,
of_sum and of_best (mb_s by the sum and by the best of these), divided (the part of the
bytes that went over other links than the first), first_us (the first operation of the
size), and rates as given.`,
		Example: `  rmabench rails --fabric tcp --links 10.9.0.1,10.9.1.1 --peer-links 10.9.0.2,10.9.1.2
  rmabench rails --fabric verbs --links mlx5_0,mlx5_1 --peer-links mlx5_2,mlx5_3 --sizes 64K:16M
  make rails VM=qemu OUT=out                # shaped networks of several ratios, in a guest`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if f.req.Sizes, err = bench.ParseSizes(f.sizes); err != nil {
				return usage(err)
			}
			if err := f.check(rowFormats); err != nil {
				return usage(err)
			}
			if f.req.Fabric == "verbs" {
				f.req.Fabric = "ibv"
			}
			if err := f.req.Check(); err != nil {
				return usage(err)
			}
			return f.run(cmd.Context(), s)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.req.Fabric, "fabric", "tcp", "tcp or verbs")
	fl.StringSliceVar(&f.req.Links[0], "links", nil, "links of rank 0: addresses (tcp), or DEVICE[:PORT]")
	fl.StringSliceVar(&f.req.Links[1], "peer-links", nil, "links of rank 1, in the same order")
	fl.StringSliceVar(&f.req.Ops, "ops", bench.RailsOps, strings.Join(bench.RailsOps, ", "))
	fl.StringVar(&f.sizes, "sizes", "4K:16M", "bytes, a list or a range by powers of two")
	fl.IntVar(&f.req.Window, "window", 4, "operations in flight")
	fl.IntVar(&f.req.Rounds, "rounds", 3, "number of repetitions of everything, in turn")
	fl.DurationVar(&f.req.Time, "time", 200*time.Millisecond, "time per series")
	fl.StringVar(&f.req.Rates, "rates", "", "what the links were shaped to, for the results")
	f.flags(fl, "table, or json: one object per line")
	return cmd
}

// run measures and writes the results.
func (f *railsFlags) run(ctx context.Context, s streams) error {
	rs, err := gather(f.bar(s), len(f.req.Ops)*len(f.req.Sizes),
		func(r *bench.RailsResult) string { return fmt.Sprintf("%s of %s", r.Op, bench.FormatSize(r.Size)) },
		func(emit func(bench.RailsResult) error) error { return session.RailsLocal(ctx, f.req, s.err, emit) })
	if len(rs) == 0 || ctx.Err() != nil {
		return err
	}
	return errors.Join(err, writeRows(&f.outFlags, s, rs, bench.WriteRails)) // what was measured is kept
}
