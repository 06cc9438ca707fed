package hub

import "github.com/seed33544411/rma/internal/fifo"

// Uses reports whether a message to send, or a receive, that has not ended uses memory in [lo, hi).
// The inbox is empty. Set-up path. Owner's.
func (h *Hub) Uses(lo, hi uint64) bool {
	h.prog.AssertOwned()
	if h.shared.Uses(lo, hi) {
		return true
	}
	for _, c := range h.all {
		if converses(c, lo, hi) {
			return true
		}
	}
	return false
}

// converses reports whether an operation of c uses memory in [lo, hi).
func converses(c *Conversation, lo, hi uint64) bool {
	if c.loop.Uses(lo, hi) || c.ch != nil && c.ch.Uses(lo, hi) {
		return true
	}
	for _, q := range []*fifo.Queue[*Op]{&c.sends, &c.recvs} {
		for o := range q.All() {
			if (*o).uses(lo, hi) {
				return true
			}
		}
	}
	return false
}

// uses reports whether o, which has not been passed to a channel, uses memory in [lo, hi).
func (o *Op) uses(lo, hi uint64) bool {
	switch o.kind {
	case Send:
		return o.Out.Uses(lo, hi)
	case SendBatch:
		for i := range o.batch.Outs {
			if o.batch.Outs[i].Uses(lo, hi) {
				return true
			}
		}
	case RecvSeveral:
		for i := range o.recvs.Slots {
			if o.recvs.Slots[i].In.Uses(lo, hi) {
				return true
			}
		}
	default:
		return o.In.Uses(lo, hi)
	}
	return false
}
