package logp

import "math"

// Refiner corrects the model while the program runs: it compares what batches
// took, as its Observer says, with what was predicted and learns one factor a mode,
// Params.Scale. It belongs to one goroutine.
//
// A factor moves slowly on purpose. Of the last three errors of a mode the
// median counts, so a single bad sample (the process was descheduled, a page
// fault) has no weight at all; the median is clipped to a factor of 1.5, so that
// bad samples in a row have little; and 1/16 of it is applied. What is learned is
// published only when it is off what was published by more than 3 %, so that
// cached plans are not thrown away for noise. A mode that was learned to be slow
// and turns out far faster comes back in steps of a quarter. Modes that are not used fade back to
// what was sampled.
type Refiner struct {
	p    Params // as sampled, with the published Scale
	mode [NumModes]learned
}

// learned is the state of one mode; factors as natural logarithms.
type learned struct {
	log     float64    // factor learned
	recent  [2]float64 // the two targets before
	n       uint64     // samples
	refused uint64
	drift   bool
}

const (
	// refineWeight: 1/16 follows a real change within some 30 batches, and
	// averages noise of 20 % down to 4 %.
	refineWeight = 1.0 / 16
	refineClip   = 0.405 // ln 1.5
	// refineRecover is the weight of errors that say that a slow mode is far
	// faster than was learned: it is hardly used, so that it gives few samples, and to go
	// back to what was sampled is no risk.
	refineRecover = 1.0 / 4
	// refineAfter samples a mode's factor is published: below that it is
	// mostly the first sample.
	refineAfter   = 8
	refinePublish = 0.03
	// refineForget of a mode's factor fades with every batch of another mode:
	// a mode that is avoided because it looked slow gives no samples, and must
	// be tried again some day. Half is gone after 355 batches; trying costs a few
	// batches in some hundreds.
	refineForget = 1.0 / 512
	// driftAt: a factor of 1.25 off is beyond what noise does after averaging,
	// and shifts switch points enough to measure again. It clears at half.
	driftAt = 0.223 // ln 1.25
)

// NewRefiner returns a refiner that starts from p. Errors wrap ErrParams.
func NewRefiner(p *Params) (*Refiner, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	r := &Refiner{p: *p}
	for m := range r.mode {
		r.mode[m].log = math.Log(p.scale(Mode(m)))
	}
	return r, nil
}

// Params returns the parameters with the published factors.
func (r *Refiner) Params() Params { return r.p }

// learn takes note that what is predicted as load took took.
func (r *Refiner) learn(m Mode, took, load, ns float64) bool {
	l := &r.mode[m]
	if !(ns > 0 && ns <= MaxNS) {
		l.refused++
		return false
	}
	// A transfer that took less than what it shares with others, too, says
	// only that the mode is fast: the smallest factor there is.
	target := math.Log(min(max(took/load, MinScale), MaxScale))
	l.n++
	mid := median(l.recent[0], l.recent[1], target)
	l.recent = [2]float64{l.recent[1], target}
	if l.n < 3 {
		return false // no median yet
	}
	step := min(max(mid-l.log, -refineClip), refineClip)
	weight := refineWeight
	if step == -refineClip && l.log >= refineClip {
		weight = refineRecover
	}
	l.log += weight * step
	changed := r.publish(m)
	for o := range r.mode {
		if o := Mode(o); o != m && r.mode[o].log != 0 {
			r.mode[o].log -= refineForget * r.mode[o].log
			changed = r.publish(o) || changed
		}
	}
	return changed
}

// publish takes over what has been learned of mode m if it is off enough.
func (r *Refiner) publish(m Mode) bool {
	l := &r.mode[m]
	switch off := math.Abs(l.log); {
	case off > driftAt && l.n >= refineAfter:
		l.drift = true
	case off < driftAt/2:
		l.drift = false
	}
	if l.n < refineAfter || math.Abs(l.log-math.Log(r.p.scale(m))) <= refinePublish {
		return false
	}
	r.p.Scale[m] = min(max(math.Exp(l.log), MinScale), MaxScale)
	return true
}

func median(a, b, c float64) float64 {
	return max(min(a, b), min(max(a, b), c))
}

// Learned is what a Refiner knows of one mode.
type Learned struct {
	Factor  float64 `json:"factor"`  // learned, published or not
	Samples uint64  `json:"samples"` // learned from
	Refused uint64  `json:"refused"` // that could not be
	// Drift: the factor is so far from 1 that the link should be sampled
	// again. Cleared when it is back within half of that.
	Drift bool `json:"drift"`
}

// Learned returns what is known of mode m.
func (r *Refiner) Learned(m Mode) Learned {
	l := &r.mode[m]
	return Learned{Factor: math.Exp(l.log), Samples: l.n, Refused: l.refused, Drift: l.drift}
}
