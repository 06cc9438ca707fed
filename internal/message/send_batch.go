package message

import "github.com/seed33544411/rma/logp"

// batch is the front of a backlog while it is planned and handed to the streams. Its
// slices run in parallel but for planned and Messages, which leave out what the planner
// does not see: messages that are written to advertised receives.
type batch struct {
	logp.Batch         // as the planner sees it
	total      float64 // that it predicts
	planned    []int   // places of its messages in first

	first []*Out
	modes []logp.Mode
	part  []int32 // of the plan, in which each message travels
	gone  []bool  // handed to a stream: the message may be its owner's again
}

// direct is the mode of messages that are written to an advertised receive.
// The planner does not see them: the receiver has chosen their way.
const direct = logp.Mode(logp.NumModes)

// reset empties b.
func (b *batch) reset() {
	b.Messages, b.planned = b.Messages[:0], b.planned[:0]
	b.first, b.modes, b.part, b.gone = b.first[:0], b.modes[:0], b.part[:0], b.gone[:0]
}

// add appends o, which stands behind n.
func (b *batch) add(o *Out, n *neighbour) {
	b.first, b.part, b.gone = append(b.first, o), append(b.part, 0), append(b.gone, false)
	if o.wanted {
		b.modes = append(b.modes, direct)
		n.end = 0
		return
	}
	b.planned = append(b.planned, len(b.modes))
	b.modes = append(b.modes, logp.Eager)
	b.Messages = append(b.Messages, n.describe(o))
}

// follow gives the messages the modes of their plan.
func (b *batch) follow(plan *logp.Plan) {
	b.total = plan.Total
	for i := range plan.Parts {
		p := &plan.Parts[i]
		for _, k := range p.Messages {
			k := b.planned[k]
			b.modes[k], b.part[k] = p.Mode, int32(i)
		}
	}
}

// oneMode returns the mode of the whole batch, if all of it was planned and goes in one.
func (b *batch) oneMode() (m logp.Mode, ok bool) {
	if len(b.planned) == 0 || len(b.planned) < len(b.first) {
		return 0, false
	}
	m = b.modes[0]
	for i := range b.first {
		if b.modes[i] != m {
			return 0, false
		}
	}
	return m, true
}

// announceAll has all be announced that would go through the ring.
func (b *batch) announceAll() {
	for _, k := range b.planned {
		b.modes[k] = logp.Scatter
	}
}

// firstInRing is the place of the first message that is to go through the ring.
func (b *batch) firstInRing() int {
	for i, m := range b.modes {
		if m == logp.Eager || m == logp.Gather {
			return i
		}
	}
	return len(b.modes)
}
