package logp

import "math"

// tie is the relative difference below which two predictions count as equal:
// a thousand times the rounding error of a sum of MaxMessages terms, and far
// below what any clock resolves.
const tie = 1e-9

// Decision is the best single mode for a batch, and what the others cost.
type Decision struct {
	Mode     Mode
	Feasible ModeSet        // modes that can carry every message
	Costs    [NumModes]Cost // of the feasible ones
	// Tied: another mode costs the same; Mode takes less receiver memory.
	Tied bool
}

// Choose returns the mode that moves the whole batch soonest. Ties go to the
// mode that takes less receiver memory, then to the lower mode number. The error
// wraps ErrInfeasible when no single mode can carry every message (a plan of
// several may). It does not allocate. The batch must be valid.
func (p *Params) Choose(b *Batch) (Decision, error) {
	var d Decision
	best := math.Inf(1)
	for m := range Mode(NumModes) {
		c, err := p.Cost(b, m)
		if err != nil {
			continue
		}
		d.Feasible = d.Feasible.With(m)
		d.Costs[m] = c
		switch t := c.Total(); {
		case math.IsInf(best, 1) || t < best-tie*math.Abs(best):
			d.Mode, d.Tied, best = m, false, t
		case t <= best+tie*math.Abs(best):
			d.Tied = true
			if c.Ring < d.Costs[d.Mode].Ring {
				d.Mode, best = m, min(t, best)
			}
		}
	}
	if d.Feasible == 0 {
		return d, ErrNoMode
	}
	return d, nil
}
