package message

import "github.com/seed33544411/rma/fabric"

// Uses reports whether a message to send, or a receive, that has not ended uses memory in [lo, hi).
// Set-up path: like the other methods of this name it searches all of them, so that closing memory pays and messages do not.
func (c *Channel) Uses(lo, hi uint64) bool {
	c.opt.Owner.Assert()
	return sends(&c.sender, lo, hi) || receives(&c.receiver, lo, hi)
}

// Uses works as Channel.Uses.
func (l *Loopback) Uses(lo, hi uint64) bool {
	return l.backlog.head.uses(lo, hi) || l.posted.uses(lo, hi)
}

// Uses works as Channel.Uses for the receives on the list.
func (s *Shared) Uses(lo, hi uint64) bool { return s.posted.uses(lo, hi) }

// Uses reports whether the message has bytes in [lo, hi).
func (o *Out) Uses(lo, hi uint64) bool { return fabric.Overlaps(o.Data, lo, hi) }

// Uses reports whether the receive's buffer has bytes in [lo, hi).
func (in *In) Uses(lo, hi uint64) bool { return fabric.Overlaps(in.Buf, lo, hi) }

// sends reports whether s has a message that uses memory in [lo, hi).
func sends(s *sender, lo, hi uint64) bool {
	if s.backlog.head.uses(lo, hi) {
		return true
	}
	for o := range s.inflight.All() {
		if (*o).Uses(lo, hi) {
			return true
		}
	}
	for _, first := range s.groups.held {
		if first.uses(lo, hi) {
			return true
		}
	}
	return false
}

// receives reports whether r has a receive that uses memory in [lo, hi).
func receives(r *receiver, lo, hi uint64) bool {
	if r.posted.uses(lo, hi) {
		return true
	}
	for _, in := range r.fetching {
		if in.Uses(lo, hi) {
			return true
		}
	}
	for _, ins := range [][]*In{r.advertised.held, r.order.matched, r.lost} {
		for _, in := range ins {
			if in != nil && in.Uses(lo, hi) {
				return true
			}
		}
	}
	return false
}

// uses reports whether a message of the list that begins with o, which may be nil, uses memory in [lo, hi).
func (o *Out) uses(lo, hi uint64) bool {
	for ; o != nil; o = o.next {
		if o.Uses(lo, hi) {
			return true
		}
	}
	return false
}

func (q *inQueue) uses(lo, hi uint64) bool {
	for in := q.head; in != nil; in = in.next {
		if in.Uses(lo, hi) {
			return true
		}
	}
	return false
}
