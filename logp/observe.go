package logp

import (
	"math"
	"math/bits"
)

// Observer makes a Refiner learn from what a sender sees of its own batches. It
// learns how much slower than usual the link has become, mode by mode, and leaves
// it to calibration how far the model is off: what a sender sees is too little to
// tell that, but how it changes is enough to tell a change.
//
// Samples are held against others of the same mode and about the same size. Of
// the last eight the least counts, so that what else runs on the machine has no
// weight unless it hits eight in a row. The Refiner then takes the median of three such, and a small step. It belongs to one
// goroutine, and does not allocate after it was made.
type Observer struct {
	r      *Refiner
	levels [NumModes][observeSizes]level
	tries  [NumModes]uint8 // samples since a mode was tried that is avoided
	eager  [NumModes]bool  // the last try said that it is fast again
}

const (
	// observeSizes is how many classes of batches there are: a factor of four in
	// bytes each, with ten bytes more for each message.
	observeSizes = 12
	observeLast  = 8
	// observeFirst samples of a class only find out what is normal.
	observeFirst = 12
	// observeNear is how far from usual a sample may be and still tell what is
	// usual, with a weight of 1/observeSlow: figures within it are noise, or of
	// no consequence. What is slower is a change, and does not become usual; what is
	// faster shows that what seemed usual was not.
	observeNear = 1.25
	observeSlow = 32
	// tryEvery samples one batch goes in a mode that is avoided only for what was
	// learned: it would not be seen to have recovered. One of some hundreds of
	// batches, at most four times as slow as it could be. Every other one once
	// it has been seen to be fast.
	tryEvery = 8
)

// level is what is known of a class.
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

// Refiner is what learns. Its Params are those to plan with.
func (o *Observer) Refiner() *Refiner { return o.r }

// Observe takes note that the sender saw the end of batch b, all of it in mode m,
// after ns. It returns true when Refiner().Params has changed by it. Samples that cannot be are not learned
// from.
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
	c, _ := bare.Cost(b, m) // as SenderSees has found, it can
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

// take returns how much slower than usual the class is.
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
	case least*observeNear < l.usual: // it was not usual, then
		l.usual += (least - l.usual) / observeLast
	default:
		l.usual += (least - l.usual) / observeSlow
	}
	return max(least/l.usual, 1/observeNear), true
}

// Try returns a mode that batch b should go in for once, to find out whether what was
// learned of it still holds: one that would be cheaper than total but for that. Call
// it for batches that are observed.
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
