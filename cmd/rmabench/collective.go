package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed33544411/rma/coll"
	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/collective"
	"github.com/seed33544411/rma/internal/bench/session"
	"github.com/seed33544411/rma/internal/settings"
)

// collFlags are the flags of coll.
type collFlags struct {
	req         collective.Request
	ranks       []int
	sizes, form string
	file        string
	choice      bool
	quiet       bool
}

// collCommand returns the command that measures collective operations.
func collCommand(s streams) *cobra.Command {
	f := &collFlags{}
	cmd := &cobra.Command{
		Use: "coll", Short: "Measure the latency of collective operations, or the choice of their algorithms", Args: noArgs,
		Long: `Measure collective operations of package coll among ranks that this command starts on
this host: each rank calls an operation many times without a pause. The table shows the
mean time of a call, averaged over the ranks, and that of the slowest rank: medians over
the rounds. RMA_COLL_ALGORITHM forces algorithms.

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
  RMA_COLL_ALGORITHM=allreduce=ring rmabench coll --ops allreduce --sizes 1M --ranks 8 --format json
  rmabench coll --choice --ops allreduce,bcast --sizes 8,4K,1M --ranks 2,4,8 --fabric shm`,
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
	fl.StringVar(&f.sizes, "sizes", "8,1K,64K,1M", "bytes of the smaller of the two buffers of a rank, a list or a range by powers of two such as 8:1M")
	fl.IntSliceVar(&f.ranks, "ranks", []int{2}, "number of ranks, or a list: a job for each")
	fl.StringVar(&f.req.Fabric, "fabric", "auto", "shm, tcp, verbs, or auto")
	fl.IntVar(&f.req.Rounds, "rounds", 3, fmt.Sprintf("number of repetitions of everything, in turn (with --choice: default %d)", collective.ChoiceRounds))
	fl.DurationVar(&f.req.Time, "time", 50*time.Millisecond, fmt.Sprintf("time per series of a point (with --choice: default %v)", collective.ChoiceTime))
	fl.BoolVar(&f.choice, "choice", false, "compare the automatic choice with every algorithm, measured and predicted")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "no progress of --choice on standard error")
	fl.StringVar(&f.form, "format", "table", "table, or json: one object per line")
	fl.StringVar(&f.file, "out", "", "write results to this file instead of standard output, at the end")
	return cmd
}

// requests returns a request for each number of ranks. Its errors are usage errors.
func (f *collFlags) requests() (reqs []collective.Request, err error) {
	if err := checkFabricAndFormat(f.req.Fabric, f.form, collective.Formats); err != nil {
		return nil, err
	}
	if f.req.Sizes, err = bench.ParseSizes(f.sizes); err != nil {
		return nil, err
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
		if err := req.Check(); err != nil {
			return nil, err
		}
		reqs = append(reqs, req)
	}
	return reqs, nil
}

// measure measures latencies and writes them.
func (f *collFlags) measure(ctx context.Context, s streams, reqs []collective.Request) (err error) {
	var rs []collective.Result
	for _, req := range reqs {
		if err := session.CollectiveLocal(ctx, req, s.err, func(r collective.Result) error { rs = append(rs, r); return nil }); err != nil {
			return err
		}
	}
	out, commit := output(s, f.file)
	if f.form == "json" {
		enc := json.NewEncoder(out)
		for _, r := range rs {
			err = errors.Join(err, enc.Encode(r))
		}
	} else {
		err = collective.WriteText(out, rs)
	}
	return errors.Join(err, commit())
}

// compare measures the choice of algorithms, and writes the results as they come.
func (f *collFlags) compare(ctx context.Context, s streams, reqs []collective.Request) (err error) {
	out, commit := output(s, f.file)
	w := collective.NewChoiceWriter(out, f.form)
	total := 0
	for i := range reqs {
		total += reqs[i].Cells()
	}
	var bar io.Writer = s.err
	if f.quiet || f.file == "" && !isTerminal(s.err) {
		bar = nil // the results themselves show the progress
	}
	p := newProgress(bar, total)
	var rs []collective.ChoiceResult
	for _, req := range reqs {
		err = session.CollectiveChoiceLocal(ctx, req, s.err, func(r collective.ChoiceResult) error {
			p.text = fmt.Sprintf("%s of %s by %d ranks", r.Op, bench.FormatSize(r.Size), r.Ranks)
			p.done()
			rs = append(rs, r)
			return w.Write(r)
		})
		if err != nil {
			break
		}
	}
	p.close(err == nil)
	if err != nil {
		return err
	}
	return errors.Join(w.Close(collective.SummarizeChoice(rs)), commit())
}
