package pingpong

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/seed33544411/rma/logp"
)

// probes are the batches that Calibrate plays, the most informative first. Each of the
// terms of logp.Extra varies independently in some of them: few messages of many sizes,
// many messages of few bytes, several writes or descriptors. The first six cover the whole
// range, so that a small budget costs accuracy between points, but never makes the fit
// extrapolate; the first dozen determine the choice for small messages, which are the most
// frequent in most programs. A single small message is not among them: it is sent eagerly
// without a plan, so its time does not help to choose modes.
var probes = [...]struct{ n, size int }{
	{2, 8}, {64, 64}, {8, 512}, {4, 32 << 10}, {8, 8}, {32, 2 << 10},
	{1, 4 << 10}, {1, 128 << 10}, {64, 512}, {2, 512}, {128, 8}, {8, 4 << 10},
	{16, 8 << 10}, {2, 64}, {64, 4 << 10}, {16, 64}, {1, 32 << 10}, {128, 1 << 10}, {16, 32 << 10}, {4, 8}, {16, 512}, {1, 512 << 10},
}

// warm touches every block of the rings, descriptors and queues at both ends, because the
// first access to a page is slow. Its first batches, which cost little, show the error of
// the model in each mode, and so how long the others will take.
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
	// pilotTrips is the number of trips at the beginning of a probe. The first is not
	// counted; the others determine how many more there is time for.
	pilotTrips = 2
	// moreTrips is the number of further trips of a good sample, and maxTrips that of a
	// long calibration.
	moreTrips = 6
	maxTrips  = 32
	// warmPart is the share of the budget that one batch of warm may take.
	warmPart = 1. / 20
	// fitPart is the share of the budget reserved for the fit and the last control
	// messages.
	fitPart = 1. / 20
	// settledAt is the relative error in every mode below which a new probe counts as
	// predicted; after settledAfter of them in a row, more probes do not improve the model.
	settledAt    = 0.07
	settledAfter = 4
	// fewest is the number of probes played before the calibration may end early. Later
	// probes are larger.
	fewest = 12
	// fitFrom is the least number of samples of a mode for which a fit is better than none.
	fitFrom = 6
)

// purse is the rest of a budget and its distribution. All times are in ns.
type purse struct {
	now        func() int64
	start, end int64
	budget     float64
	bytes      int64                  // that may still be moved
	shares     int                    // plays that are left
	slow       [logp.NumModes]float64 // recent ratio of measured to predicted time, at least 1
}

func newPurse(now func() int64, budget time.Duration, bytes int64) *purse {
	bytes = cmp.Or(bytes, math.MaxInt64)
	p := &purse{now: now, start: now(), budget: float64(budget), bytes: bytes, shares: len(probes) * logp.NumModes}
	p.end = p.start + int64(float64(budget)*(1-fitPart))
	for m := range p.slow {
		p.slow[m] = 1
	}
	return p
}

func (p *purse) left() float64 { return float64(p.end - p.now()) }

// affords reports whether the budget allows trips round trips of that many bytes, with a
// predicted ns each way in mode m.
func (p *purse) affords(trips int, m logp.Mode, ns float64, bytes int64) bool {
	return 2*float64(trips)*ns*p.slow[m] <= p.left() && int64(trips)*bytes <= p.bytes
}

// tripBytes returns the number of bytes that a round trip of b moves, at least one.
func tripBytes(b *logp.Batch) int64 {
	n := int64(1)
	for i := range b.Messages {
		n += 2 * b.Messages[i].Size
	}
	return n
}

// learn records a measured time and its prediction. The ratio decays slowly, because a
// model that is right for one byte may be wrong for many.
func (p *purse) learn(m logp.Mode, predicted, took float64) {
	p.slow[m] = max(1, took/predicted, 0.7*p.slow[m])
}

// more returns how many round trips of that many bytes, with ns each way, may follow a
// pilot. An ample budget allows more than a good sample needs; a small one is better spent
// on other probes than on exact ones.
func (p *purse) more(ns float64, bytes int64) int {
	p.shares--
	left := p.left()
	n := left / float64(max(p.shares, 1)) / (2 * ns)
	if n < moreTrips {
		n = min(left/(2*ns), moreTrips, max(n, 2))
	}
	return int(min(max(n, 0), maxTrips, float64(p.bytes/bytes)))
}

// Samples are measured batches, by mode.
type Samples [logp.NumModes][]logp.Sample

// Outcome describes a calibration. Both sides know Probes and Error; only the first side
// knows the rest, except Bytes.
type Outcome struct {
	Probes int                    // batches that were played in one mode or more
	Error  [logp.NumModes]float64 // mean over held-out batches, as a fraction; 0 without samples

	Fits    [logp.NumModes]logp.HeldOut
	Samples Samples
	Settled bool          // ended early, because the model predicted new batches
	Trips   int           // round trips, all
	Bytes   int64         // moved by these, both directions together
	Spent   time.Duration // on the first side's clock
}

// fit fits Extra to the samples, and records the remaining errors.
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

// surprises returns the largest relative error, over the modes, of the prediction for a
// probe that took ns (0: not played), by a model fitted to the samples so far.
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

// quartile returns the lower quartile: other load on the machine only adds time.
func quartile(ts []int64) int64 {
	slices.Sort(ts)
	return ts[(len(ts)-1)/4]
}
