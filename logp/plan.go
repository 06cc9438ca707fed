package logp

import (
	"fmt"
	"math/bits"
	"strings"
)

// Part is a set of messages that travel together: eager, one write each;
// gather, one write for all; scatter, one descriptor for all.
type Part struct {
	Mode Mode
	// Messages are indices into the batch, ascending: gather headers and
	// descriptors want ascending sequence numbers.
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
	WhyTrain               // small messages only, of which it is known that they are gathered
)

var whyNames = [...]string{"cheapest partition", "one mode is cheapest", "forced mode", "manual table", "message by message", "small messages are gathered"}

// String returns the reason in words.
func (w Why) String() string {
	if int(w) < len(whyNames) {
		return whyNames[w]
	}
	return fmt.Sprintf("why(%d)", uint8(w))
}

// Plan is a partition of a batch: every message in exactly one part.
type Plan struct {
	// Parts: descriptors, which are posted first (their round trips overlap with
	// what follows), eager writes, gathers. The latter two go through one ring
	// in the order of the batch.
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

// add appends a part of messages idx; the order must have room for them.
func (p *Plan) add(m Mode, idx []int32) {
	if len(idx) == 0 {
		return
	}
	k := len(p.order)
	p.order = append(p.order, idx...)
	p.close(m, k)
}

// close makes a part of what stands in the order from k on.
func (p *Plan) close(m Mode, k int) {
	part := p.order[k:len(p.order):len(p.order)]
	ascend(part)
	p.Parts = append(p.Parts, Part{Mode: m, Messages: part})
}

// ascend sorts distinct indices of messages: a bit for each, then bit by bit.
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
