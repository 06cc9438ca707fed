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
	"github.com/seed33544411/rma/internal/bench/collective"
	"github.com/seed33544411/rma/internal/bench/compare"
	"github.com/seed33544411/rma/internal/bench/session"
)

// nbcFlags are the flags of nbc.
type nbcFlags struct {
	collFlags
	progress []string
}

// nbcCommand returns the command that measures how much of collective operations a computation
// hides.
func nbcCommand(s streams) *cobra.Command {
	f := &nbcFlags{}
	cmd := &cobra.Command{
		Use: "nbc", Short: "Measure how much of non-blocking collective operations a computation hides", Args: noArgs,
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
	fl.StringVar(&f.sizes, "sizes", "1K,64K,1M", "bytes of the smaller of the two buffers of a rank, a list or a range by powers of two such as 8:1M")
	fl.IntSliceVar(&f.ranks, "ranks", []int{2}, "number of ranks, or a list: a job for each")
	fl.StringVar(&f.req.Fabric, "fabric", "auto", "shm, tcp, verbs, or auto")
	fl.StringSliceVar(&f.progress, "progress", []string{collective.Progress[0]}, "where the threads of progress goroutines run: "+strings.Join(collective.Progress, ", "))
	fl.StringSliceVar(&f.peers, "peers", nil, "libraries to measure in turn, over shm or tcp: "+strings.Join(compare.MPINames(), ", "))
	fl.IntVar(&f.req.Rounds, "rounds", 3, "number of repetitions of everything, in turn")
	fl.DurationVar(&f.req.Time, "time", 50*time.Millisecond, "time per series of a point")
	fl.StringVar(&f.form, "format", "table", "table, or json: one object per line")
	fl.StringVar(&f.file, "out", "", "write results to this file instead of standard output, at the end")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "no progress on standard error")
	return cmd
}

// run measures and writes the results.
func (f *nbcFlags) run(ctx context.Context, s streams, reqs []collective.Request) (err error) {
	peers, close, err := f.libraries(ctx, s)
	if err != nil {
		return err
	}
	defer close()
	p := newProgress(f.bar(s), len(reqs)*f.req.Rounds*len(f.req.Ops)*(len(f.progress)+len(peers)))
	var hs []collective.Hidden
	var failed error
	left := slices.Clone(peers)
	for _, req := range reqs {
		if failed = errors.Join(failed, f.turns(ctx, s, req, &left, p, func(h collective.Hidden) error { hs = append(hs, h); return nil })); ctx.Err() != nil {
			break
		}
	}
	p.close(failed == nil)
	if len(hs) == 0 || ctx.Err() != nil {
		return failed
	}
	out, commit := output(s, f.file)
	if f.form == "json" {
		err = bench.WriteLines(out, hs)
	} else {
		err = collective.WriteHidden(out, hs)
	}
	return errors.Join(err, commit(), failed) // what was measured is kept
}

// turns measures each operation of req with each place of the progress goroutines, and by each
// peer, round by round. A peer that fails is left out from then on.
func (f *nbcFlags) turns(ctx context.Context, s streams, req collective.Request, peers *[]*compare.Collective, p *progress, emit func(collective.Hidden) error) error {
	one := req
	one.Rounds = 1
	var failed error
	for round := range req.Rounds {
		for _, op := range req.Ops {
			one.Ops = []string{op}
			p.text = fmt.Sprintf("round %d: %s by %d ranks", round+1, op, req.Ranks)
			for _, where := range f.progress {
				err := session.CollectiveHiddenLocal(ctx, one, where == "placed", s.err, func(h collective.Hidden) error {
					h.Progress, h.Round = where, round
					return emit(h)
				})
				if err != nil {
					return errors.Join(failed, err)
				}
				p.done()
			}
			*peers = slices.DeleteFunc(*peers, func(c *compare.Collective) bool {
				hs, err := c.Hidden(ctx, &one)
				p.done()
				for _, h := range hs {
					h.Round = round
					err = errors.Join(err, emit(h))
				}
				failed = errors.Join(failed, err)
				return err != nil
			})
			if ctx.Err() != nil {
				return errors.Join(failed, context.Cause(ctx))
			}
		}
	}
	return failed
}
