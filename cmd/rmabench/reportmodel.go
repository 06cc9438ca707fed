package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/choice"
	"github.com/seed33544411/rma/internal/bench/overlap"
	"github.com/seed33544411/rma/internal/bench/report"
	"github.com/seed33544411/rma/internal/bench/session"
)

// reportBatch is the batch that reports explain: many small messages and two large
// ones.
const reportBatch = "64x128,2x1M"

// reportCurves are the batch sizes of a report's curves.
var reportCurves = []int{1, 16}

// reportBudget is the default of --choice-budget: the small grid takes a few seconds, but most of
// a report's time on very slow or busy machines.
const reportBudget = time.Minute

// reportMost is the largest message of these curves.
const reportMost = 256 << 10

// grid returns the grid of --choice.
func (f *reportFlags) grid() choice.Grid {
	if f.choice == "full" {
		return choice.Default()
	}
	return choice.Small()
}

// cells returns the comparison of a report.
func (f *reportFlags) cells(fabric string) choice.Request {
	r := choice.Request{Fabric: fabric, Grid: f.grid(), Seed: 1, Pin: f.pin, Time: f.time}
	if f.choice == "small" {
		r.Budget = f.budget
	}
	return r
}

// overlap returns the transfers beside computation of a report.
func (f *reportFlags) overlap(fabric string) overlap.Request {
	return overlap.Request{
		What: "overlap", Fabric: fabric, Ops: []string{"message"}, Who: overlap.OverlapWho,
		Sizes: []int{1 << 20}, Ratios: []float64{1, 2, 4}, Rounds: 1, Time: f.time,
	}
}

// beside returns the latencies of a report beside computing goroutines, waiting goroutines, and
// streams.
func (f *reportFlags) beside(fabric string) []overlap.Request {
	req := overlap.Request{Fabric: fabric, Rounds: 1, Time: f.time}
	react, threads, streams := req, req, req
	react.What, react.Ops, react.Counts = "reactivity", []string{"get", "handler"}, []int{0, 1}
	threads.What, threads.Beside, threads.Counts = "threads", []string{"signals"}, []int{0, 1, 16}
	streams.What, streams.Beside, streams.Counts, streams.Sizes = "concurrent", []string{"messages"}, []int{0, 1}, []int{64 << 10}
	return []overlap.Request{react, threads, streams}
}

// modelSteps returns the number of progress steps of model for a fabric.
func (f *reportFlags) modelSteps() int {
	if f.choice == "none" {
		return 0
	}
	r := f.cells("")
	over := f.overlap("")
	n := 1 + len(r.Cells()) + 1 + len(reportCurves) + over.Points()
	for _, b := range f.beside("") {
		n += b.Points()
	}
	return n
}

// model adds the parameters of the cost model on a fabric, the comparison of modes, the
// explanation of a batch, the curves around the model's switches, messages beside
// computation, and latencies beside other work.
func (f *reportFlags) model(ctx context.Context, fabric string, rep *report.Report, p *progress) error {
	left := f.modelSteps()
	if left == 0 {
		return nil
	}
	defer func() { p.skip(left) }()
	step := func(text string) {
		left--
		p.step(fabric + " " + text)
	}
	var said bytes.Buffer // a progress bar and other text would mix on one terminal
	for _, part := range []struct {
		name string
		do   func() error
	}{
		{"plogp", func() error {
			res, err := session.PlogpLocal(ctx, bench.PlogpRequest{Fabric: fabric, Budget: choice.DefaultSampling, Pin: f.pin, Label: f.label}, &said)
			if err == nil {
				rep.Plogp = append(rep.Plogp, *res)
				step("plogp")
			}
			return err
		}},
		{"choice", func() error {
			var rs []choice.Result
			req := f.cells(fabric)
			n := len(req.Cells())
			err := session.ChoiceLocal(ctx, req, &said, choice.Emit{Cell: func(r choice.Result) error {
				step(fmt.Sprintf("%d × %s", r.N, r.Mix))
				rs = append(rs, r)
				return nil
			}})
			if len(rs) > 0 {
				sum := choice.Summarize(rs)
				sum.Seed, sum.Cut = 1, len(rs) < n
				rep.Cells, rep.Summaries = append(rep.Cells, rs...), append(rep.Summaries, sum)
			}
			p.skip(n - len(rs)) // before the next part, so that the last step is the last point
			left -= n - len(rs)
			return err
		}},
		{"explain", func() error {
			sizes, err := choice.ParseBatch(reportBatch)
			if err != nil {
				return err
			}
			return session.ChoiceLocal(ctx, choice.Request{Fabric: fabric, Batch: sizes, Measure: true, Pin: f.pin, Time: f.time}, &said, choice.Emit{Explain: func(x choice.Explanation) error {
				rep.Explained = append(rep.Explained, x)
				step("explain " + reportBatch)
				return nil
			}})
		}},
		{"switch", func() error {
			return session.ChoiceLocal(ctx, choice.Request{Fabric: fabric, Curves: reportCurves, Most: reportMost, Pin: f.pin, Time: f.time}, &said, choice.Emit{Curve: func(c choice.Curve) error {
				step(fmt.Sprintf("switch n=%d", c.N))
				rep.Curves = append(rep.Curves, c)
				return nil
			}})
		}},
		{"overlap", func() error {
			return session.OverlapLocal(ctx, f.overlap(fabric), &said, func(r overlap.Result) error {
				step("overlap, " + r.Who + " computing")
				rep.Overlaps = append(rep.Overlaps, r)
				return nil
			})
		}},
		{"latency beside other work", func() error {
			for _, req := range f.beside(fabric) {
				err := session.OverlapLocal(ctx, req, &said, func(r overlap.Result) error {
					step(fmt.Sprintf("%s, %s beside %d", r.What, r.Op, r.Count))
					rep.Overlaps = append(rep.Overlaps, r)
					return nil
				})
				if err != nil {
					return fmt.Errorf("%s: %w", req.What, err)
				}
			}
			return nil
		}},
	} {
		if err := part.do(); err != nil {
			if text := strings.TrimSpace(said.String()); text != "" {
				return fmt.Errorf("%s %s: %s", fabric, part.name, strings.TrimPrefix(text, "rmabench: "))
			}
			return fmt.Errorf("%s %s: %w", fabric, part.name, err)
		}
	}
	return nil
}
