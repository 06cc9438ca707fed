package rma

import (
	"errors"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/onesided"
)

// made is a work request that build made of an operation.
type made struct {
	o     *op
	mark  onesided.Mark // where the operation had come to before it
	phase phase
	last  bool  // nothing of the operation is left behind it
	begun bool  // the operation became the head of its word with it
	slot  uint8 // of a request to accumulate
	n     int32 // bytes of its elements
}

// slotShift is where in the work request ID of an accumulate its slot stands.
const slotShift = 40

// post hands the peer's operations to its link until its queue is full. It
// reports whether any were taken.
// Hot path.
func (t *initiator) post(p *Peer) bool {
	did := false
	if len(p.acks) > 0 {
		did = t.postAcks(p)
	}
	if p.loops.redo.head != nil {
		did = t.postList(p, &p.loops.redo) || did
	}
	return t.postList(p, &p.posts) || did
}

func (t *initiator) postList(p *Peer, q *opQueue) bool {
	did := false
	for q.head != nil && !(p.full && p.inflight > 0) {
		if q.head.stops(p) {
			if !t.pass(p, q) {
				return did
			}
			did = true
			continue
		}
		n := t.build(p, q)
		if n == 0 {
			return did // no slot for a result: one comes with a completion
		}
		took, err := p.ep.Post(t.wrs[:n])
		t.took(p, q, took)
		t.giveBack(t.made[took:n])
		did = did || took > 0
		switch {
		case err == nil:
			p.full = took < n
			if p.full {
				p.counts.Retries++
			}
			if p.full && p.inflight == 0 {
				return true // full of nothing: stay awake and ask again
			}
		case errors.Is(err, fabric.ErrInvalidWR):
			t.spoil(q, err)
			did = true
		default:
			p.reportDown(err)
			return true
		}
	}
	return did
}

// stops reports whether the operation is for its turn to come, and no request of
// the link.
func (o *op) stops(p *Peer) bool {
	return o.kind == kindFence || o.kind == kindAccumulate && (p.own || p.asks.state == wayFailed) || p.loops.n+len(p.reduces) > 0 && p.contended(o)
}

// pass carries out the first operation of the list, which stops the others. It
// returns false if something has to end before.
func (t *initiator) pass(p *Peer, q *opQueue) bool {
	o := q.head
	switch {
	case p.asks.state == wayFailed && o.kind == kindAccumulate:
		t.spoil(q, p.asks.err)
	case p.contended(o):
		return t.lineUp(p, q)
	case o.kind == kindAccumulate:
		if p.inflight > 0 {
			return false // this rank's requests to itself
		}
		q.pop().queued = false
		t.self(p, o)
	case p.loose > 0:
		return false
	default:
		p.fenced = true
		q.pop().Drop()
	}
	return true
}

// took notes that the link has the first n requests made.
func (t *initiator) took(p *Peer, q *opQueue, n int) {
	for i := range n {
		m := &t.made[i]
		m.o.pending++
		if m.o.kind == kindAccumulate {
			p.asks.asked(m)
		}
		if m.last {
			q.pop()
			m.o.queued = false
			if m.o.kind.isLoose() {
				t.loosen(m.o)
			}
		}
	}
	p.inflight += n
	if n > 0 {
		p.fenced = false
	}
}

// giveBack undoes the making of requests that the link did not take, the last
// first, so that each operation ends where it began.
func (t *initiator) giveBack(ms []made) {
	for i := len(ms) - 1; i >= 0; i-- {
		m := &ms[i]
		if m.o.kind == kindAccumulate {
			t.unask(m)
			m.o.more.phase = m.phase
		} else if x := m.o.more; x != nil && !x.head {
			x.cur.Seek(m.mark)
			x.phase = m.phase
		}
		if m.begun { // what is before it must not line up behind it
			m.o.peer.loops.leave(m.o)
		}
		if m.o.pending == 0 {
			t.forget(m.o)
		}
	}
}

// spoil ends the first operation of the list, which the link cannot carry out.
func (t *initiator) spoil(q *opQueue, err error) {
	o := q.pop()
	o.queued = false
	t.note(o, err)
	if o.pending == 0 {
		t.end(o)
	}
}

// build makes work requests of the first operations of the peer.
// Hot path.
func (t *initiator) build(p *Peer, q *opQueue) int {
	n := 0
	t.used = 0
	for o := q.head; o != nil && n < chain && !o.stops(p); o = o.next {
		if o.more != nil && !o.more.head && o.kind != kindEmulated {
			var whole bool
			if n, whole = t.buildMore(p, o, n); !whole {
				break
			}
			continue
		}
		if o.kind.isAtomic() {
			if !t.slot(o) {
				break
			}
			s := &t.slots[p.link]
			o.sge = fabric.NewSGE(s.bytes(o.slot), s.region.LKey())
		}
		if t.used == pieces {
			break
		}
		local := t.sges[t.used : t.used+1 : t.used+1]
		local[0] = o.sge
		t.used++
		m := &t.made[n]
		m.o, m.last, m.begun = o, true, false
		if o.kind == kindEmulated && !o.more.head {
			p.begin(o)
			m.begun = true
		}
		wr := &t.wrs[n] // field by field: a literal would be made elsewhere and copied
		wr.ID, wr.Op, wr.Flags, wr.Local = t.id(o), o.kind.request(), fabric.FlagSignaled, local
		wr.RemoteAddr, wr.RKey, wr.Compare, wr.Operand = o.remote, o.rkey, o.compare, o.operand
		n++
	}
	if p.fenced && n > 0 {
		t.wrs[0].Flags |= fabric.FlagFence
	}
	return n
}

// buildMore makes work requests of an operation of many pieces or several steps,
// from where it has come to. It returns how many there are now, and whether
// nothing of the operation is left.
func (t *initiator) buildMore(p *Peer, o *op, n int) (int, bool) {
	x := o.more
	for ; n < chain; n++ {
		m := made{o: o, mark: x.cur.Mark(), phase: x.phase}
		wr := &t.wrs[n]
		*wr = fabric.WR{Op: fabric.OpWrite, Flags: fabric.FlagSignaled}
		switch {
		case o.kind == kindAccumulate:
			if !t.ask(p, o, &m, wr) {
				return n, false
			}
			wr.ID = uint64(m.slot) << slotShift
		case x.phase == phaseData:
			room := min(p.sges, pieces-t.used)
			if room == 0 || room < p.sges && n > 0 && !x.cur.Done() {
				return n, false // full lists are worth another Post
			}
			t.data(p, o, wr, room)
		case x.phase == phaseFlag:
			if t.used == pieces || !t.flag(p, o, wr) {
				return n, false
			}
		case x.phase == phaseNotify:
			t.notify(p, o, wr)
		}
		wr.ID |= t.id(o)
		m.last = x.phase == phaseEnd
		t.made[n] = m
		if m.last {
			return n + 1, true
		}
	}
	return n, false
}

// data makes the next request of the operation's data.
func (t *initiator) data(p *Peer, o *op, wr *fabric.WR, room int) {
	x := o.more
	wr.Op = o.kind.request()
	if x.cur.Len() == 0 { // one piece, or none
		wr.Local = t.sges[t.used : t.used+1 : t.used+1]
		wr.Local[0] = o.sge
		wr.RemoteAddr, wr.RKey = o.remote, o.rkey
		t.used++
	} else {
		k, remote, _ := x.cur.Next(t.sges[t.used:t.used+room], p.max)
		wr.Local = t.sges[t.used : t.used+k : t.used+k]
		wr.RemoteAddr, wr.RKey = remote.Addr, remote.Key
		t.used += k
	}
	if x.cur.Done() {
		x.phase = o.after(phaseData)
	}
}
