package logp

import "math"

// Refiner corrects the model while the program runs: it compares the times of batches, as
// its Observer reports them, with the predictions, and learns one factor per mode,
// Params.Scale. It belongs to one goroutine.
//
// A factor changes slowly on purpose. Of the last three errors of a mode the median is
// used, so a single bad sample (the process was descheduled, a page fault) has no
// influence; the median is clipped to a factor of 1.5, so that consecutive bad samples have
// little; and 1/16 of it is applied. The factor is published only if it differs from the
// published one by more than 3 %, so that cached plans are not discarded because of noise.
// A mode that was learned to be slow and turns out to be far faster recovers in steps of a
// quarter. The factors of unused modes decay to 1.
type Refiner struct {
	p    Params // as sampled, with the published Scale
	mode [NumModes]learned
}

// learned is the state of one mode. Factors are natural logarithms.
type learned struct {
	log     float64    // the learned factor
	recent  [2]float64 // the two previous targets
	n       uint64     // samples
	refused uint64
	drift   bool
}

const (
	// refineWeight: 1/16 follows a real change within about 30 batches, and averages noise
	// of 20 % down to 4 %.
	refineWeight = 1.0 / 16
	refineClip   = 0.405 // ln 1.5
	// refineRecover is the weight of errors that show a slow mode to be far faster than was
	// learned: it is hardly used and gives few samples, and returning to the sampled value
	// is no risk.
	refineRecover = 1.0 / 4
	// refineAfter is the number of samples after which a mode's factor is published:
	// before, it is mostly the first sample.
	refineAfter   = 8
	refinePublish = 0.03
	// refineForget is the fraction of a mode's factor that decays with every batch of
	// another mode: a mode that is avoided because it looked slow gives no samples, and
	// must be tried again. Half has decayed after 355 batches; a try costs a few batches in
	// some hundreds.
	refineForget = 1.0 / 512
	// driftAt: a factor of 1.25 is more than noise after averaging, and shifts switch
	// points enough for a new measurement. Drift is cleared at half of it.
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

// learn records that operations with a predicted time of load took the time took.
func (r *Refiner) learn(m Mode, took, load, ns float64) bool {
	l := &r.mode[m]
	if !(ns > 0 && ns <= MaxNS) {
		l.refused++
		return false
	}
	// A transfer that took less than the part that it shares with others only shows that
	// the mode is fast: the smallest factor.
	target := math.Log(min(max(took/load, MinScale), MaxScale))
	l.n++
	mid := median(l.recent[0], l.recent[1], target)
	l.recent = [2]float64{l.recent[1], target}
	if l.n < 3 {
		return false // too few for a median
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

// publish publishes the learned factor of mode m if it differs enough.
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

// Learned is the state of one mode of a Refiner.
type Learned struct {
	Factor  float64 `json:"factor"`  // published or not
	Samples uint64  `json:"samples"` // used samples
	Refused uint64  `json:"refused"` // impossible samples
	// Drift: the factor is so far from 1 that the link should be sampled again. It is
	// cleared when the factor is back within half of that.
	Drift bool `json:"drift"`
}

// Learned returns the state of mode m.
func (r *Refiner) Learned(m Mode) Learned {
	l := &r.mode[m]
	return Learned{Factor: math.Exp(l.log), Samples: l.n, Refused: l.refused, Drift: l.drift}
}
