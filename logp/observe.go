package logp

import (
	"math"
	"math/bits"
)

// Observer makes a Refiner learn from the sender's observations of its own batches. It
// learns how much slower than usual the link has become, mode by mode, and leaves the error
// of the model to calibration: a sender observes too little to find that error, but enough
// to detect a change.
//
// Samples are compared with others of the same mode and a similar size. Of the last eight
// the least counts, so that other load on the machine has no influence unless it hits eight
// in a row. The Refiner then takes the median of three such values, and a small step. An
// Observer belongs to one goroutine, and does not allocate after its creation.
type Observer struct {
	r      *Refiner
	levels [NumModes][observeSizes]level
	tries  [NumModes]uint8 // samples since an avoided mode was tried
	eager  [NumModes]bool  // the last try found it fast again
}

const (
	// observeSizes is the number of classes of batches: a factor of four in bytes each,
	// with ten bytes added per message.
	observeSizes = 12
	observeLast  = 8
	// observeFirst is the number of samples of a class that only establish its usual level.
	observeFirst = 12
	// observeNear is the largest factor from the usual level at which a sample still
	// changes that level, with a weight of 1/observeSlow: differences within it are noise,
	// or do not matter. A slower sample is a change, and does not become usual; a faster
	// one shows that the level was too high.
	observeNear = 1.25
	observeSlow = 32
	// tryEvery is the number of samples after which one batch uses a mode that is avoided
	// only because of what was learned, to detect its recovery. This is one of some
	// hundreds of batches, at most four times as slow as possible. If a try finds the mode
	// fast, every other sample does so.
	tryEvery = 8
)

// level is the state of a class.
type level struct {
	last  [observeLast]float32 // observed over predicted
	n     uint32
	usual float64
}

// NewObserver returns an observer that starts from p. Errors wrap ErrParams.
func NewObserver(p *Params) (*Observer, error) {
	r, err := NewRefiner(p)
	if err != nil {
		return nil, err
	}
	return &Observer{r: r}, nil
}

// Refiner returns the refiner that learns. Its Params are those to plan with.
func (o *Observer) Refiner() *Refiner { return o.r }

// Observe records that the sender observed the end of batch b, all of it in mode m, after
// ns. It returns true if this has changed Refiner().Params. Impossible samples are ignored.
func (o *Observer) Observe(b *Batch, m Mode, ns float64) bool {
	bare := &o.r.p
	share, err := bare.SenderSees(b, m)
	if err != nil || !(ns > 0 && ns <= MaxNS) || !(share > 0) {
		if m < NumModes {
			o.r.mode[m].refused++
		}
		return false
	}
	ratio, known := o.levels[m][sizeClass(b)].take(ns / share)
	if !known {
		return false
	}
	c, _ := bare.Cost(b, m) // SenderSees has found it feasible
	credit := c.Terms[TermCredit]
	total := c.Total() - c.Terms[TermLearned] - credit
	took := total + min(share, total)*(ratio-1)
	before := o.r.mode[m].log
	changed := o.r.learn(m, took, total, took)
	o.eager[m] = ratio < math.Exp(before)-0.1
	return changed
}

func sizeClass(b *Batch) int {
	return min(bits.Len64(uint64(b.Bytes()+10*int64(len(b.Messages))))/2, observeSizes-1)
}

// take returns the factor by which the class is slower than usual.
func (l *level) take(x float64) (ratio float64, known bool) {
	l.last[l.n%observeLast] = float32(x)
	l.n++
	if l.n < observeLast {
		return 0, false
	}
	least := math.Inf(1)
	for _, y := range l.last {
		least = min(least, float64(y))
	}
	switch {
	case l.n <= observeFirst:
		l.usual += (least - l.usual) / float64(l.n-observeLast+1)
		return 0, false
	case least > l.usual*observeNear: // a change
	case least*observeNear < l.usual: // the level was too high
		l.usual += (least - l.usual) / observeLast
	default:
		l.usual += (least - l.usual) / observeSlow
	}
	return max(least/l.usual, 1/observeNear), true
}

// Try returns a mode that batch b should use once, to find out whether what was learned
// about it still holds: a mode that would be cheaper than total without its learned factor.
// Call it for batches that are observed.
func (o *Observer) Try(b *Batch, total float64) (m Mode, ok bool) {
	p := &o.r.p
	for m := range Mode(NumModes) {
		if p.scale(m) < 1+2*refinePublish {
			continue
		}
		if o.tries[m]++; o.tries[m] < tryEvery && !(o.eager[m] && o.tries[m] > 1) {
			continue
		}
		c, err := p.Cost(b, m)
		if err != nil || c.Total() < total || c.Total()-c.Terms[TermLearned] >= total {
			continue
		}
		o.tries[m] = 0
		return m, true
	}
	return 0, false
}
