package logp

import (
	"fmt"
	"math"
	"math/bits"
	"strings"

	"github.com/seed33544411/rma/internal/enum"
)

// Part is a set of messages that travel together: eager, one write each;
// gather, one write for all; scatter, one descriptor for all.
type Part struct {
	Mode Mode
	// Messages are indices into the batch, in ascending order, because gather headers and
	// descriptors need ascending sequence numbers.
	Messages []int32
}

// Why is the reason for a plan.
type Why uint8

// Reasons.
const (
	WhyCheapest  Why = iota // least predicted total of all examined partitions
	WhySingle               // one mode for all is the cheapest
	WhyForced               // Policy.Forced
	WhyTable                // Policy.Table
	WhyFallback             // limits permit no contiguous partition: message by message
	WhyCoalesced            // only small messages, which are known to be gathered
)

var whyNames = [...]string{"cheapest partition", "one mode is cheapest", "forced mode", "manual table", "message by message", "small messages are gathered"}

// String returns the reason in words.
func (w Why) String() string { return enum.Name("why", whyNames[:], w) }

// Plan is a partition of a batch: every message in exactly one part.
type Plan struct {
	// Parts: descriptors, which are posted first (their round trips overlap with the rest),
	// eager writes, gathers. The latter two use one ring, in the order of the batch.
	Parts []Part
	// Total is the predicted time in ns.
	Total float64
	Why   Why

	order []int32 // memory of the Messages of all parts
}

// Modes returns the modes that the plan uses.
func (p *Plan) Modes() (s ModeSet) {
	for i := range p.Parts {
		s = s.With(p.Parts[i].Mode)
	}
	return s
}

// String returns one line: mode and number of messages of each part.
func (p *Plan) String() string {
	var s strings.Builder
	for i, q := range p.Parts {
		if i > 0 {
			s.WriteString(" + ")
		}
		fmt.Fprintf(&s, "%v×%d", q.Mode, len(q.Messages))
	}
	return s.String()
}

// reset empties p for n messages and keeps its memory.
func (p *Plan) reset(n int, why Why) {
	if cap(p.order) < n {
		p.order = make([]int32, 0, n)
	}
	p.order, p.Parts, p.Total, p.Why = p.order[:0], p.Parts[:0], 0, why
}

// add appends a part of messages idx. order must have room for them.
func (p *Plan) add(m Mode, idx []int32) {
	if len(idx) == 0 {
		return
	}
	k := len(p.order)
	p.order = append(p.order, idx...)
	p.close(m, k)
}

// close makes a part of the entries of order from k on.
func (p *Plan) close(m Mode, k int) {
	part := p.order[k:len(p.order):len(p.order)]
	ascend(part)
	p.Parts = append(p.Parts, Part{Mode: m, Messages: part})
}

// ascend sorts distinct indices of messages, using a bitmap.
func ascend(idx []int32) {
	sorted := true
	for i := 1; i < len(idx); i++ {
		sorted = sorted && idx[i-1] < idx[i]
	}
	if sorted {
		return
	}
	var set [MaxMessages / 64]uint64
	low, high := int32(MaxMessages), int32(0)
	for _, i := range idx {
		set[i/64] |= 1 << (i % 64)
		low, high = min(low, i/64), max(high, i/64)
	}
	k := 0
	for w := low; w <= high; w++ {
		for s := set[w]; s != 0; s &= s - 1 {
			idx[k] = w*64 + int32(bits.TrailingZeros64(s))
			k++
		}
	}
}

// PlanCost returns the cost of moving b in the given parts, which must carry
// every message of b once, each within the limits of its mode. It does not allocate.
func (p *Params) PlanCost(b *Batch, parts []Part) Cost {
	t := tally{p: p, b: b}
	for k := range parts {
		t.begin(parts[k].Mode)
		for _, i := range parts[k].Messages {
			t.add(int(i))
		}
		t.end()
	}
	return t.cost()
}

// tie is the relative difference below which two predictions count as equal: a thousand
// times the rounding error of a sum of MaxMessages terms, and far below the resolution of
// any clock.
const tie = 1e-9

// Decision is the best single mode for a batch, and the costs of the others.
type Decision struct {
	Mode     Mode
	Feasible ModeSet        // modes that can carry every message
	Costs    [NumModes]Cost // of the feasible ones
	// Tied: another mode costs the same, but Mode uses less receiver memory.
	Tied bool
}

// Choose returns the mode that transfers the whole batch soonest. Ties go to the mode that
// uses less receiver memory, then to the lower mode number. The error wraps ErrInfeasible
// if no single mode can carry every message (a plan of several may). It does not allocate.
// The batch must be valid.
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

// Switch is a size at which the best single mode for n equal messages changes.
type Switch struct {
	Size int64 `json:"size"` // first size of To
	From Mode  `json:"from"`
	To   Mode  `json:"to"`
}

// Switches returns the sizes at which Choose changes its result, for n messages of one size
// from 0 to most bytes with the given flags, in ascending order: the thresholds that other
// libraries are configured with. They are exact to the byte if a choice lasts for more than
// an eighth of an octave; shorter ones may be missed. Sizes that no mode can carry are
// skipped. It is for users, reports and tests, not for the data path.
func (p *Params) Switches(l *Limits, n int, flags Flags, most int64) []Switch {
	b := Batch{Limits: *l, Messages: make([]Message, min(max(n, 1), MaxMessages))}
	choose := func(size int64) (Mode, bool) {
		for i := range b.Messages {
			b.Messages[i] = Message{Size: size, Flags: flags}
		}
		d, err := p.Choose(&b)
		return d.Mode, err == nil
	}
	var out []Switch
	most = min(most, MaxSize)
	low := int64(0)
	from, ok := choose(0)
	for low < most {
		high := min(low+max(1, low/8), most)
		to, can := choose(high)
		switch {
		case !can || !ok:
		case to != from:
			a, b := low, high // from is chosen at a, not at b
			for b-a > 1 {
				if m, can := choose(a + (b-a)/2); can && m == from {
					a += (b - a) / 2
				} else {
					b = a + (b-a)/2
				}
			}
			if m, can := choose(b); can {
				out = append(out, Switch{Size: b, From: from, To: m})
				low, from = b, m
				continue
			}
		}
		low, from, ok = high, to, can
	}
	return out
}
