package logp

import (
	"fmt"
	"strings"
)

// Part is a set of messages that travel together: eager, one write each;
// gather, one write for all; scatter, one descriptor for all.
type Part struct {
	Mode Mode
	// Messages are indices into the batch, in the order of transfer.
	Messages []int32
}

// Why says how a plan came about.
type Why uint8

// Reasons.
const (
	WhyCheapest Why = iota // least predicted total of all partitions looked at
	WhySingle              // one mode for all is the cheapest
	WhyForced              // Policy.Forced
	WhyTable               // Policy.Table
	WhyFallback            // limits leave no contiguous partition: message by message
)

var whyNames = [...]string{"cheapest partition", "one mode is cheapest", "forced mode", "manual table", "message by message"}

// String returns the reason in words.
func (w Why) String() string {
	if int(w) < len(whyNames) {
		return whyNames[w]
	}
	return fmt.Sprintf("why(%d)", uint8(w))
}

// Plan is a partition of a batch: every message in exactly one part.
type Plan struct {
	// Parts in the order in which to post them: urgent messages, descriptors
	// (their round trips overlap with what follows), eager writes, gathers.
	Parts []Part
	// Total is the predicted time in ns.
	Total float64
	Why   Why

	order []int32 // backs Messages of all parts
}

// Modes returns the modes that the plan uses.
func (p *Plan) Modes() (s ModeSet) {
	for i := range p.Parts {
		s = s.With(p.Parts[i].Mode)
	}
	return s
}

// String is one line: mode and number of messages of each part.
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

// reset empties p for n messages, keeping its memory.
func (p *Plan) reset(n int, why Why) {
	if cap(p.order) < n {
		p.order = make([]int32, 0, n)
	}
	p.order, p.Parts, p.Total, p.Why = p.order[:0], p.Parts[:0], 0, why
}

// add appends a part; the order must have room for it.
func (p *Plan) add(m Mode, idx []int32) {
	if len(idx) == 0 {
		return
	}
	k := len(p.order)
	p.order = append(p.order, idx...)
	p.Parts = append(p.Parts, Part{Mode: m, Messages: p.order[k:len(p.order):len(p.order)]})
}

// CheckParts says whether parts carry every message of b exactly once, each
// within the limits of its mode. Errors wrap ErrBatch or ErrInfeasible.
func (p *Params) CheckParts(b *Batch, parts []Part) error {
	seen := make([]bool, len(b.Messages))
	left := len(seen)
	for k, q := range parts {
		var r room
		if len(q.Messages) == 0 {
			return fmt.Errorf("%w: part %d is empty", ErrBatch, k)
		}
		for _, i := range q.Messages {
			if i < 0 || int(i) >= len(seen) || seen[i] {
				return fmt.Errorf("%w: part %d: message %d unknown or sent twice", ErrBatch, k, i)
			}
			seen[i] = true
			left--
			if err := p.Feasible(&b.Limits, b.Messages[i], q.Mode); err != nil {
				return fmt.Errorf("part %d, message %d: %w", k, i, err)
			}
			if !r.fits(&b.Limits, b.Messages[i], q.Mode) {
				return fmt.Errorf("%w: part %d: message %d does not fit with the others", ErrInfeasible, k, i)
			}
		}
	}
	if left > 0 {
		return fmt.Errorf("%w: %d messages in no part", ErrBatch, left)
	}
	return nil
}

// PlanCost returns the cost of moving b in the given parts, which must pass
// CheckParts. It does not allocate.
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
