package collective

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/seed33544411/rma/coll"
	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/choice"
)

// ChoiceCell is an operation, a size and a number of ranks.
type ChoiceCell struct {
	Op     string `json:"op"`
	Size   int    `json:"size"`
	Ranks  int    `json:"ranks"`
	Fabric string `json:"fabric"`

	Chosen string `json:"chosen"` // the algorithm of the automatic choice
	Best   string `json:"best"`   // the fastest that was forced

	// Regret is the time of the automatic choice over that of the best algorithm, less 1;
	// noise is not subtracted. Regret95 is its interval.
	Regret   float64         `json:"regret"`
	Regret95 choice.Interval `json:"regret_95,omitzero"`
	// Choosing is the time of the automatic choice over that of the same algorithm when it is
	// forced, less 1: the cost of choosing, and noise.
	Choosing float64 `json:"choosing"`
	// Noise is the interquartile range of the rounds of the best algorithm over its time.
	Noise float64 `json:"noise"`
}

// Time is the time of an algorithm in µs: of a call, averaged over the ranks, the median of
// the rounds.
type Time struct {
	Algorithm   string    `json:"algorithm"` // or auto
	PredictedUS float64   `json:"predicted_us"`
	US          float64   `json:"us"`
	Error       float64   `json:"prediction_error"` // predicted over measured, less 1
	Rounds      []float64 `json:"rounds_us"`
}

// ChoiceResult is a cell with the times of its series.
type ChoiceResult struct {
	ChoiceCell
	Auto   Time   `json:"auto"`
	Forced []Time `json:"forced"` // by predicted time
}

// fill computes the figures that are derived from the rounds and the predictions.
func (r *ChoiceResult) fill() {
	set := func(t *Time) {
		t.US = bench.Median(t.Rounds)
		t.Error = t.PredictedUS/t.US - 1
	}
	best := 0
	for i := range r.Forced {
		a := &r.Forced[i]
		if set(a); a.US < r.Forced[best].US {
			best = i
		}
		if a.Algorithm == r.Chosen {
			r.Auto.PredictedUS = a.PredictedUS
			set(&r.Auto)
			r.Choosing = r.Auto.US/a.US - 1
		}
	}
	b := &r.Forced[best]
	r.Best, r.Regret, r.Regret95 = b.Algorithm, r.Auto.US/b.US-1, r.sample().Regret95()
	r.Noise = (choice.Quantile(b.Rounds, 0.75) - choice.Quantile(b.Rounds, 0.25)) / b.US
}

func (r *ChoiceResult) sample() choice.Sample {
	s := choice.Sample{Auto: r.Auto.Rounds, Share: 0.5} // the median: each round is a mean over many calls already
	for _, a := range r.Forced {
		s.Forced = append(s.Forced, a.Rounds)
	}
	return s
}

// ChoiceSummary is the last line of a comparison.
type ChoiceSummary struct {
	Summary bool   `json:"summary"` // true: distinguishes the line from an algorithm
	Fabric  string `json:"fabric"`
	Cells   int    `json:"cells"` // those with a choice, which regrets are about

	choice.Regrets
	MedianChoosing float64 `json:"median_choosing"`

	// Over all algorithms of all cells, and over those that were chosen.
	MedianAbsPredictionError float64 `json:"median_abs_prediction_error"`
	Chosen                   float64 `json:"median_abs_prediction_error_chosen"`
}

// SummarizeChoice combines results.
func SummarizeChoice(rs []ChoiceResult) ChoiceSummary {
	s := ChoiceSummary{Summary: true}
	var regret, noise, choosing, all, chosen []float64
	var cells []choice.Sample
	for i := range rs {
		r := &rs[i]
		s.Fabric = r.Fabric
		chosen = append(chosen, math.Abs(r.Auto.Error))
		for _, a := range r.Forced {
			all = append(all, math.Abs(a.Error))
		}
		if len(r.Forced) > 1 {
			regret, noise, choosing = append(regret, r.Regret), append(noise, r.Noise), append(choosing, r.Choosing)
			cells = append(cells, r.sample())
		}
	}
	s.Cells, s.Regrets, s.MedianChoosing = len(cells), choice.RegretsOf(regret, noise, cells), bench.Median(choosing)
	s.MedianAbsPredictionError, s.Chosen = bench.Median(all), bench.Median(chosen)
	return s
}

// ChoiceOps are the operations that have several algorithms.
var ChoiceOps = []string{"bcast", "reduce", "allreduce", "reducescatter", "gather", "scatter", "allgather", "alltoall"}

// Defaults of a comparison: short series, and more rounds, an odd number for a median.
const (
	ChoiceRounds = 7
	ChoiceTime   = 10 * time.Millisecond
)

// automatic is the name of the series of the automatic choice.
const automatic = "auto"

// runChoice measures each operation and size by every algorithm and by the automatic choice,
// in turns.
func runChoice(ctx context.Context, t *coll.Team, req *Request, emit func(ChoiceResult) error) error {
	// An operation for which there is a choice, whatever the environment forces: the
	// predictions are known then.
	if err := t.Force("allreduce=" + automatic); err != nil {
		return err
	}
	if err := coll.Allreduce(ctx, t, nil, make([]float64, 1), coll.Sum); err != nil {
		return err
	}
	for _, op := range req.Ops {
		for _, n := range req.SizesOf(op) {
			r := ChoiceResult{ChoiceCell: ChoiceCell{Op: op, Size: n, Ranks: t.Size(), Fabric: req.Fabric}, Auto: Time{Algorithm: automatic}}
			err := choiceCell(ctx, t, req, &r)
			if err == nil && t.Rank() == 0 {
				r.fill()
				err = emit(r)
			}
			if err != nil {
				return fmt.Errorf("%s of %d bytes: %w", op, n, err)
			}
		}
	}
	return nil
}

// choiceCell measures one cell: the rounds of its series, of which a different one is the
// first in each round.
func choiceCell(ctx context.Context, t *coll.Team, req *Request, r *ChoiceResult) error {
	if err := t.Force(r.Op + "=" + automatic); err != nil {
		return err
	}
	chosen, ps, err := t.Choice(r.Op, r.Size)
	if err != nil {
		return err
	}
	r.Chosen = chosen
	for _, p := range ps {
		r.Forced = append(r.Forced, Time{Algorithm: p.Algorithm, PredictedUS: p.NS / 1e3})
	}
	kern := newKernel(ctx, t, r.Op, r.Size)
	all := []*Time{&r.Auto}
	for i := range r.Forced {
		all = append(all, &r.Forced[i])
	}
	calls, us := make([]int, len(all)), make([]float64, 0, len(all)*req.Rounds)
	for i, s := range all {
		if err := t.Force(r.Op + "=" + s.Algorithm); err != nil {
			return err
		}
		if err := kern.check(); err != nil {
			return err
		}
		if calls[i], err = callsIn(ctx, t, r.Op, kern.call, req.Time); err != nil {
			return err
		}
	}
	for round := range req.Rounds {
		for i := range all {
			k := (i + round) % len(all)
			if err := t.Force(r.Op + "=" + all[k].Algorithm); err != nil {
				return err
			}
			took, _, err := timed(ctx, t, r.Op, kern.call, calls[k])
			if err != nil {
				return err
			}
			us = append(us, float64(took)/1e3/float64(calls[k]))
		}
	}
	sum := make([]float64, len(us))
	if err := coll.Allreduce(ctx, t, us, sum, coll.Sum); err != nil {
		return err
	}
	for j, s := range sum {
		k := (j%len(all) + j/len(all)) % len(all)
		all[k].Rounds = append(all[k].Rounds, s/float64(t.Size()))
	}
	return nil
}
