package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed33544411/rma/coll"
	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/collective"
	"github.com/seed33544411/rma/internal/bench/compare"
	"github.com/seed33544411/rma/internal/bench/session"
	"github.com/seed33544411/rma/internal/settings"
)

// collFlags are the flags of coll.
type collFlags struct {
	outFlags
	req    collective.Request
	ranks  []int
	sizes  string
	choice bool
	peers  []string
	copies bool
	bind   string
	plot   bool
}

// collCommand returns the command that measures collective operations.
func collCommand(s streams) *cobra.Command {
	f := &collFlags{}
	cmd := &cobra.Command{
		Use: "coll", Short: "Measure the latency of collective operations, or the choice of their algorithms", Args: startsRanks,
		Long: `Measure collective operations of package coll among ranks that this command starts on
this host, as the OSU micro-benchmarks do: all ranks call an operation many times, with a
barrier between calls that is not timed. The table shows the mean time of a call, averaged
over the ranks, and that of the slowest rank: medians over the rounds. The results of each
operation are checked. RMA_COLL_ALGORITHM forces algorithms.

With --peers, measure MPI libraries as well, operation by operation in turn, by a program
that is compiled with their mpicc and makes the same series. The ratio is the time of the
library over that of rma, the median of the rounds; above 1, rma is ahead. Libraries that
are not installed are named and left out. mpich-async is MPICH with MPICH_ASYNC_PROGRESS=1.
Ranks of rma and of the libraries are bound to cores in the same way, as rmarun --bind binds them:
by default to a core each, if there are as many, else not. Libraries that poll without
yielding are slower by orders of magnitude if they are not bound and the system leaves two ranks on one processor.
With --two-copies, measure shm also with two copies of large data, into memory that the
ranks share and out of it (double buffering, RMA_DISABLE_CMA=1), in turn: the ratio is the
time with two copies over that of the copies that are chosen otherwise.
There may be more ranks than processors: rma and Open MPI yield the processor then, while
Debian's MPICH polls until its time slice ends.
--format json writes a line for each library (op, size, ranks, fabric, bind, us, max_us, and
peer, ratio, ratio_min, ratio_max of a peer).

With --choice, measure each operation by every algorithm and by the automatic choice, in
turns within one job, and compare the times with each other and with the predictions:

  regret   time of the automatic choice over that of the best forced algorithm, less 1,
           and its interval of 95 %, by a bootstrap of the rounds; noise is not subtracted
  noise    interquartile range of the rounds of the best algorithm, over their median

With --format json, --choice writes a line for each algorithm (op, size, ranks, fabric,
algorithm, predicted_us, us, chosen, best, regret, rounds_us, …) and one for the automatic
choice (algorithm auto), and at last a summary.`,
		Example: `  rmabench coll --ranks 4
  rmabench coll --ops barrier,allreduce --sizes 8:1M --ranks 2 --fabric tcp
  rmabench coll --ops allreduce,alltoall --sizes 64K:4M --ranks 2,8 --fabric shm --peers openmpi,mpich --plot
  rmabench coll --ops barrier --ranks 2 --fabric shm --peers openmpi --bind none
  RMA_COLL_ALGORITHM=allreduce=ring rmabench coll --ops allreduce --sizes 1M --ranks 8 --format json
  rmabench coll --ops barrier,allreduce --sizes 8 --ranks 2,4 --fabric shm --call persistent
  RMA_COLL_ALGORITHM=alltoall=single rmabench coll --ops alltoall --sizes 4K:4M --ranks 8 --fabric shm --two-copies --plot
  rmabench coll --choice --ops allreduce,bcast --sizes 8,4K,1M --ranks 2,4,8 --fabric shm
  rmabench coll --choice --ops allreduce,bcast --sizes 8,64K --ranks 8 --hosts 2`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			set := cmd.Flags().Changed
			if f.choice {
				if !set("ops") {
					f.req.Ops = collective.ChoiceOps
				}
				if !set("rounds") {
					f.req.Rounds = collective.ChoiceRounds
				}
				if !set("time") {
					f.req.Time = collective.ChoiceTime
				}
			}
			reqs, err := f.requests()
			if err != nil {
				return usage(err)
			}
			if f.choice {
				return f.compare(cmd.Context(), s, reqs)
			}
			return f.measure(cmd.Context(), s, reqs)
		},
	}
	fl := cmd.Flags()
	fl.StringSliceVar(&f.req.Ops, "ops", []string{"barrier", "bcast", "allreduce", "allgather", "alltoall"}, strings.Join(collective.Ops, ", ")+" (with --choice: default those with several algorithms)")
	f.common(fl, "8,1K,64K,1M")
	fl.IntVar(&f.req.Hosts, "hosts", 1, "as how many hosts this one counts, with as many ranks each: between them only links that reach other hosts are used (see RMA_HOST)")
	fl.Lookup("rounds").Usage += fmt.Sprintf(" (with --choice: default %d)", collective.ChoiceRounds)
	fl.Lookup("time").Usage += fmt.Sprintf(" (with --choice: default %v)", collective.ChoiceTime)
	fl.StringVar(&f.req.Call, "call", collective.Calls[0], "the form that is measured: blocking, started (a start and a wait), or persistent (the same of an operation that is prepared once)")
	fl.StringVar(&f.bind, "bind", collective.BindAuto, "bind ranks, of the libraries as well, to cores: "+strings.Join(collective.Binds, ", ")+" (scatter if there is a core for each rank, else none)")
	fl.BoolVar(&f.choice, "choice", false, "compare the automatic choice with every algorithm, measured and predicted")
	fl.BoolVar(&f.copies, "two-copies", false, "measure also with two copies of large data through shared memory, in turn")
	fl.BoolVar(&f.plot, "plot", false, "draw the ratios as bars")
	return cmd
}

// common defines the flags of coll and nbc.
func (f *collFlags) common(fl *pflag.FlagSet, sizes string) {
	fl.StringVar(&f.sizes, "sizes", sizes, "bytes of the smaller of the two buffers of a rank, a list or a range by powers of two such as 8:1M")
	fl.IntSliceVar(&f.ranks, "ranks", []int{2}, "number of ranks, or a list: a job for each")
	fl.StringVar(&f.req.Fabric, "fabric", "auto", "shm, tcp, verbs, or auto")
	fl.StringSliceVar(&f.peers, "peers", nil, "libraries to measure in turn, over shm or tcp: "+strings.Join(compare.MPINames(), ", "))
	fl.IntVar(&f.req.Rounds, "rounds", 3, "number of repetitions of everything, in turn")
	fl.DurationVar(&f.req.Time, "time", 50*time.Millisecond, "time per series of a point")
	f.flags(fl, "table, or json: one object per line")
}

// requests returns a request for each number of ranks. Its errors are usage errors.
func (f *collFlags) requests() (reqs []collective.Request, err error) {
	if err := checkFabricAndFormat(f.req.Fabric, &f.outFlags, rowFormats); err != nil {
		return nil, err
	}
	if f.req.Sizes, err = bench.ParseSizes(f.sizes); err != nil {
		return nil, err
	}
	switch {
	case f.choice && len(f.peers) > 0:
		return nil, errors.New("--peers: not with --choice")
	case f.choice && f.req.Call != collective.Calls[0]:
		return nil, errors.New("--call: not with --choice")
	case f.req.Hosts < 1:
		return nil, fmt.Errorf("%d hosts: want 1 or more", f.req.Hosts)
	case f.req.Hosts > 1 && len(f.peers) > 0:
		return nil, errors.New("--peers: not with --hosts, which they do not know")
	case f.copies && (f.choice || f.req.Fabric != "shm"):
		return nil, errors.New("--two-copies: want --fabric shm, and no --choice")
	case f.plot && (len(f.peers) == 0 && !f.copies || f.format != "table"):
		return nil, errors.New("--plot: want --peers or --two-copies, and --format table")
	}
	if len(f.ranks) == 0 {
		return nil, errors.New("--ranks: want a number")
	}
	v, err := settings.Environment()
	if err != nil {
		return nil, err
	}
	if err := coll.CheckAlgorithms(v.Text("RMA_COLL_ALGORITHM")); err != nil {
		return nil, fmt.Errorf("RMA_COLL_ALGORITHM: %w", err)
	}
	for _, p := range f.ranks {
		req := f.req
		req.Ranks, req.Choice = p, f.choice
		if req.Bind, err = collective.ParseBind(f.bind, p); err != nil {
			return nil, err
		}
		if err := req.Check(); err != nil {
			return nil, err
		}
		reqs = append(reqs, req)
	}
	return reqs, nil
}

// measure measures latencies and writes them.
func (f *collFlags) measure(ctx context.Context, s streams, reqs []collective.Request) error {
	own := []bool{false} // Request.Copies
	if f.copies {
		own = append(own, true)
	}
	var all []collective.Result
	failed := f.inTurn(ctx, s, reqs, len(own), func(one *collective.Request, _, i int) error {
		one.Copies = own[i]
		return session.CollectiveLocal(ctx, *one, s.err, func(r collective.Result) error { all = append(all, r); return nil })
	}, func(c *compare.Collective, one *collective.Request, _ int) error {
		rs, err := c.Latency(ctx, one)
		all = append(all, rs...)
		return err
	})
	rs := collective.Beside(all)
	if len(rs) == 0 || ctx.Err() != nil {
		return failed
	}
	return errors.Join(failed, writeRows(&f.outFlags, s, rs, func(w io.Writer, rs []collective.Result) error { // what was measured is kept
		err := collective.WriteText(w, rs)
		if err == nil && f.plot {
			err = plotRatios(w, rs)
		}
		return err
	}))
}

// libraries returns the programs of the peers. Those that are not installed are named, and left
// out. remove removes the programs.
func (f *collFlags) libraries(ctx context.Context, s streams) (peers []*compare.Collective, remove func(), err error) {
	remove = func() {
		for _, c := range peers {
			_ = c.Close() // temporary files
		}
	}
	for _, name := range f.peers {
		c, err := compare.NewCollective(ctx, f.req.Fabric, name)
		switch {
		case err == nil:
			peers = append(peers, c)
		case errors.Is(err, compare.ErrMissing):
			fmt.Fprintf(s.err, "rmabench: left out: %v\n", err)
		case errors.Is(err, compare.ErrPeer), errors.Is(err, compare.ErrFabric):
			remove()
			return nil, nil, usage(fmt.Errorf("--peers: %w", err))
		default:
			remove()
			return nil, nil, err
		}
	}
	return peers, remove, nil
}

// inTurn measures each operation of each request in each of the ways in which this library is
// measured, and by each peer, round by round. A peer that fails is left out from then on.
func (f *collFlags) inTurn(ctx context.Context, s streams, reqs []collective.Request, ways int,
	ours func(one *collective.Request, round, way int) error, theirs func(c *compare.Collective, one *collective.Request, round int) error,
) (failed error) {
	peers, remove, err := f.libraries(ctx, s)
	if err != nil {
		return err
	}
	defer remove()
	left := slices.Clone(peers)
	p := newProgress(f.bar(s), len(reqs)*f.req.Rounds*len(f.req.Ops)*(ways+len(peers)))
	defer func() { p.close(failed == nil) }()
	turn := func(one collective.Request, round int, op string) error {
		one.Rounds, one.Ops = 1, []string{op}
		p.text = fmt.Sprintf("round %d: %s by %d ranks", round+1, op, one.Ranks)
		for way := range ways {
			if err := ours(&one, round, way); err != nil {
				return err
			}
			p.done()
		}
		left = slices.DeleteFunc(left, func(c *compare.Collective) bool {
			err := theirs(c, &one, round)
			p.done()
			failed = errors.Join(failed, err)
			return err != nil
		})
		return context.Cause(ctx)
	}
	rounds := func(req collective.Request) error {
		for round := range req.Rounds {
			for _, op := range req.Ops {
				if err := turn(req, round, op); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for _, req := range reqs {
		err := rounds(req) // which may have added to failed
		if failed = errors.Join(failed, err); ctx.Err() != nil {
			break
		}
	}
	return failed
}

// plotRatios draws the ratios as bars of text.
func plotRatios(w io.Writer, rs []collective.Result) error {
	var err error
	for len(rs) > 0 && err == nil {
		n := rs[0].Ranks
		var rows []compare.Row
		for ; len(rs) > 0 && rs[0].Ranks == n; rs = rs[1:] {
			if r := &rs[0]; r.Peer != "" {
				rows = append(rows, compare.Row{Peer: r.Peer, Fabric: r.Fabric, Test: compare.Kind(r.Op), Size: r.Size, Rounds: 1,
					Ratio: r.Ratio, RatioMin: r.RatioMin, RatioMax: r.RatioMax})
			}
		}
		if _, err = fmt.Fprintf(w, "\n%d ranks: time of the other over that of rma\n", n); err == nil {
			err = compare.WritePlot(w, rows)
		}
	}
	return err
}

// compare measures the choice of algorithms, and writes the results as they come.
func (f *collFlags) compare(ctx context.Context, s streams, reqs []collective.Request) (err error) {
	out, commit := f.output(s)
	w := collective.NewChoiceWriter(out, f.format)
	total := 0
	for i := range reqs {
		total += reqs[i].Cells()
	}
	rs, err := gather(f.barBeside(s), total,
		func(r *collective.ChoiceResult) string {
			return fmt.Sprintf("%s of %s by %d ranks", r.Op, bench.FormatSize(r.Size), r.Ranks)
		},
		func(emit func(collective.ChoiceResult) error) error {
			for _, req := range reqs {
				err := session.CollectiveChoiceLocal(ctx, req, s.err, func(r collective.ChoiceResult) error { return errors.Join(emit(r), w.Write(r)) })
				if err != nil {
					return err
				}
			}
			return nil
		})
	if err != nil {
		return err
	}
	return errors.Join(w.Close(collective.SummarizeChoice(rs)), commit())
}
