package message

import "github.com/seed33544411/rma/logp"

// batch is the front of a backlog while it is planned and passed to the streams. Its slices
// are parallel, except planned and Messages, which omit messages that are written to
// advertised receives: the planner does not handle these.
type batch struct {
	logp.Batch         // the messages for the planner
	total      float64 // predicted time
	planned    []int   // indices in first of its messages

	first []*Out
	modes []logp.Mode
	part  []int32 // index of the plan's part of each message
	gone  []bool  // passed to a stream: the message may belong to its owner again
}

// direct is the mode of messages that are written to an advertised receive. The planner
// does not handle them: the receiver has chosen the mode.
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
	b.Messages = n.add(b.Messages, o)
}

// follow sets the modes of the messages from their plan.
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

// oneMode returns the mode of the whole batch, if all of it was planned and has the same
// mode.
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

// announceAll changes the mode of all messages for the ring: they are announced.
func (b *batch) announceAll() {
	for _, k := range b.planned {
		b.modes[k] = logp.Scatter
	}
}

// announceSync changes the mode of the synchronous messages for the ring: they are
// announced. It returns their number.
func (b *batch) announceSync() (n int) {
	for _, k := range b.planned {
		if b.first[k].Sync {
			b.modes[k] = logp.Scatter
			n++
		}
	}
	return n
}

// firstInRing returns the index of the first message for the ring.
func (b *batch) firstInRing() int {
	for i, m := range b.modes {
		if m == logp.Eager || m == logp.Gather {
			return i
		}
	}
	return len(b.modes)
}
