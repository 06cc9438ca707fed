package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed33544411/rma/internal/bench/collective"
	"github.com/seed33544411/rma/internal/bench/compare"
	"github.com/seed33544411/rma/internal/bench/session"
	"github.com/seed33544411/rma/internal/topo"
)

// nbcFlags are the flags of nbc.
type nbcFlags struct {
	collFlags
	progress []string
}

// nbcCommand returns the command that measures how much of collective operations a computation
// hides.
func nbcCommand(s streams) *cobra.Command {
	f := &nbcFlags{collFlags: collFlags{bind: topo.None.String(), req: collective.Request{Hosts: 1}}} // placed binds
	cmd := &cobra.Command{
		Use: "nbc", Short: "Measure how much of non-blocking collective operations a computation hides", Args: startsRanks,
		Long: `Measure non-blocking collective operations of package coll among ranks that this command
starts on this host, as Intel's IMB-NBC does:

  pure    start of the operation, and wait
  cpu     a computation that takes as long on an idle processor as pure of the slowest rank
  both    start, the computation, and wait
  hidden  100 (pure + cpu - both) / min(pure, cpu), not below 0 and not above 100

The times are means of calls with a barrier between them, of the rank that hides the least;
the table shows medians over the rounds, and the range of the hidden part. The results of
each operation are checked.

--progress default lets the thread of a rank's progress goroutine run where the process
may; placed binds each rank to a core, and that thread to a free core of the rank's NUMA
node (RMA_PROGRESS_CPU, as rmarun --bind scatter --bind-progress). Without a free core it
shares that of the rank.

--peers measures MPI libraries in turn, as coll does. --format json writes a line for each
round (what, op, size, ranks, fabric, peer, progress, round, t_pure, t_cpu, t_ovrl,
overlap), of which "report --add" draws heat maps.`,
		Example: `  rmabench nbc --ops allreduce,alltoall --sizes 64K:1M --ranks 2
  rmabench nbc --ranks 2,4 --progress default,placed --format json --out nbc.jsonl
  rmabench nbc --fabric shm --peers openmpi,mpich,mpich-async --sizes 1M
  rmabench report --fabrics none --add nbc.jsonl --out out/      # heat maps`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := oneOf("progress", f.progress, collective.Progress); err != nil {
				return usage(err)
			}
			reqs, err := f.requests()
			if err != nil {
				return usage(err)
			}
			return f.run(cmd.Context(), s, reqs)
		},
	}
	fl := cmd.Flags()
	fl.StringSliceVar(&f.req.Ops, "ops", collective.Ops, "operations")
	f.common(fl, "1K,64K,1M")
	fl.StringSliceVar(&f.progress, "progress", []string{collective.Progress[0]}, "where the threads of progress goroutines run: "+strings.Join(collective.Progress, ", "))
	return cmd
}

// run measures and writes the results.
func (f *nbcFlags) run(ctx context.Context, s streams, reqs []collective.Request) error {
	var hs []collective.Hidden
	failed := f.inTurn(ctx, s, reqs, len(f.progress), func(one *collective.Request, round, i int) error {
		where := f.progress[i]
		return session.CollectiveHiddenLocal(ctx, *one, where == "placed", s.err, func(h collective.Hidden) error {
			h.Progress, h.Round = where, round
			hs = append(hs, h)
			return nil
		})
	}, func(c *compare.Collective, one *collective.Request, round int) error {
		theirs, err := c.Hidden(ctx, one)
		for _, h := range theirs {
			h.Round = round
			hs = append(hs, h)
		}
		return err
	})
	if len(hs) == 0 || ctx.Err() != nil {
		return failed
	}
	return errors.Join(failed, writeRows(&f.outFlags, s, hs, collective.WriteHidden)) // what was measured is kept
}
