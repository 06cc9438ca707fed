package pingpong

import (
	"math"
	"slices"
	"time"

	"github.com/seed33544411/rma/logp"
)

// probes are the batches that Calibrate plays, the most telling first. Each of the
// terms of logp.Extra varies by itself somewhere: few messages of many sizes,
// many messages of few bytes, several writes or descriptors. The first six cover
// the range by themselves, so that a budget that ends early costs accuracy between
// points, and never makes a fit go on beyond what it has seen; the first dozen are
// what small messages, which most programs send most of, are decided by. A small message
// alone is none of them: it goes without a plan, eager, and says nothing of those that
// are chosen for.
var probes = [...]struct{ n, size int }{
	{2, 8}, {64, 64}, {8, 512}, {4, 32 << 10}, {8, 8}, {32, 2 << 10},
	{1, 4 << 10}, {1, 128 << 10}, {64, 512}, {2, 512}, {128, 8}, {8, 4 << 10},
	{16, 8 << 10}, {2, 64}, {64, 4 << 10}, {16, 64}, {1, 32 << 10}, {128, 1 << 10}, {16, 32 << 10}, {4, 8}, {16, 512}, {1, 512 << 10},
}

// warm touches every block of the rings, descriptors and queues at both ends: the
// first lap pays for the pages. The first of them, which cost next to nothing, say how far off
// the model is in each mode, and thereby what the others will take.
var warm = [...]struct {
	n, size int
	mode    logp.Mode
}{
	{1, 8, logp.Eager}, {1, 8, logp.Gather}, {1, 8, logp.Scatter},
	{128, 64, logp.Eager}, {64, 1 << 10, logp.Gather}, {64, 4 << 10, logp.Eager}, {128, 64, logp.Scatter},
}

// CalibrationSpan is the Options.Span that Calibrate needs.
const CalibrationSpan = 1 << 20

const (
	// pilotTrips of a probe come first, of which the first is not counted and the
	// others say how many more there is time for.
	pilotTrips = 2
	// moreTrips is how many more make a good sample, and maxTrips what a long
	// calibration takes.
	moreTrips = 6
	maxTrips  = 32
	// warmPart is the part of the budget that one step of warming may take.
	warmPart = 1. / 20
	// fitPart is kept for arithmetic and the last words.
	fitPart = 1. / 20
	// settledAt: a model that predicts settledAfter probes in a row, which it has
	// not seen, to this part in every mode does not get better by more of them.
	settledAt    = 0.07
	settledAfter = 4
	// fewest probes are played before the model may settle: what has not been seen
	// by then is large, and there is time for it or not.
	fewest = 12
	// fitFrom is how many samples of a mode tell more than none.
	fitFrom = 6
)

// purse is what is left of a budget, and who is to get it. All times in ns.
type purse struct {
	now        func() int64
	start, end int64
	budget     float64
	bytes      int64                  // that may be moved yet
	shares     int                    // plays that are left
	slow       [logp.NumModes]float64 // measured over predicted, lately
}

func newPurse(now func() int64, budget time.Duration, bytes int64) *purse {
	if bytes == 0 {
		bytes = math.MaxInt64
	}
	p := &purse{now: now, start: now(), budget: float64(budget), bytes: bytes, shares: len(probes) * logp.NumModes}
	p.end = p.start + int64(float64(budget)*(1-fitPart))
	for m := range p.slow {
		p.slow[m] = 1
	}
	return p
}

func (p *purse) left() float64 { return float64(p.end - p.now()) }

// affords says whether a number of round trips of so many bytes, each way predicted to take
// ns in mode m, fit.
func (p *purse) affords(trips int, m logp.Mode, ns float64, bytes int64) bool {
	return 2*float64(trips)*ns*p.slow[m] <= p.left() && int64(trips)*bytes <= p.bytes
}

// tripBytes is how many bytes a round trip of b moves, at least one.
func tripBytes(b *logp.Batch) int64 {
	n := int64(1)
	for i := range b.Messages {
		n += 2 * b.Messages[i].Size
	}
	return n
}

// learn takes note that what was predicted took took. What was slow once may be
// again: a model that is right for one byte need not be for many.
func (p *purse) learn(m logp.Mode, predicted, took float64) {
	p.slow[m] = max(1, took/predicted, 0.7*p.slow[m])
}

// more is how many round trips of so many bytes, of ns each way, may follow a pilot. A budget that
// is ample takes more than make a good sample; one that is not is for other
// probes rather than for exact ones.
func (p *purse) more(ns float64, bytes int64) int {
	p.shares--
	left := p.left()
	n := left / float64(max(p.shares, 1)) / (2 * ns)
	if n < moreTrips {
		n = min(left/(2*ns), moreTrips, max(n, 2))
	}
	return int(min(max(n, 0), maxTrips, float64(p.bytes/bytes)))
}

// Samples are measured batches, by the mode in which they went.
type Samples [logp.NumModes][]logp.Sample

// Outcome says how a calibration went. Both sides know Probes and Error; the
// rest is the first side's.
type Outcome struct {
	Probes int                    // batches that were played in one mode or more
	Error  [logp.NumModes]float64 // mean of batches that were not fitted, as a fraction; 0 without samples

	Fits    [logp.NumModes]logp.HeldOut
	Samples Samples
	Settled bool          // ended because the model predicted what came
	Trips   int           // round trips, all
	Bytes   int64         // that these have moved, both ways
	Spent   time.Duration // on the first side's clock
}

// fit makes Extra of the samples, and says what is left of the errors.
func (o *Outcome) fit(p *logp.Params) {
	for m := range o.Samples {
		h, err := logp.FitExtraHeldOut(p, logp.Mode(m), o.Samples[m])
		if err != nil {
			continue // no samples
		}
		o.Fits[m], o.Error[m] = h, h.After
		p.Extra[m] = h.Extra
	}
}

// surprises is the largest error, over the modes, with which a model of the
// samples so far predicts a probe that took ns (0: not played).
func (o *Outcome) surprises(p *logp.Params, b *logp.Batch, ns *[logp.NumModes]float64) (worst float64) {
	for m := range logp.Mode(logp.NumModes) {
		if ns[m] == 0 {
			continue
		}
		q := *p
		if len(o.Samples[m]) >= fitFrom {
			if e, err := logp.FitExtra(p, m, o.Samples[m]); err == nil {
				q.Extra[m] = e
			}
		}
		c, err := q.Cost(b, m)
		if err != nil {
			return math.Inf(1)
		}
		worst = max(worst, math.Abs(c.Total()/ns[m]-1))
	}
	return worst
}

// quartile returns the lower quartile: what else runs on the machine only adds.
func quartile(ts []int64) int64 {
	slices.Sort(ts)
	return ts[(len(ts)-1)/4]
}
