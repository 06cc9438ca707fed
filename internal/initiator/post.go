package initiator

import (
	"errors"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/onesided"
)

const (
	// maxChain is how many requests one Post takes: enough that the cost of one
	// crossing into C vanishes beside that of the requests.
	maxChain = 32

	// maxPieces is how many local pieces the requests of one Post may have: what a
	// chain of requests of a few pieces each needs. Only transfers of many small
	// pieces use it up, and go on with the next Post.
	maxPieces = 512
)

// slotShift is where in the work request ID of an accumulate its slot stands.
const slotShift = 40

// chain is the work requests of one Post, and what they were made of.
type chain struct {
	wrs  [maxChain]fabric.WR
	made [maxChain]made
	sges [maxPieces]fabric.SGE
	used int // of sges
}

// made is a work request that build made of an operation.
type made struct {
	o     *Op
	mark  onesided.Mark // where the operation had come to before it
	phase phase
	last  bool  // nothing of the operation is left behind it
	begun bool  // the operation became the head of its word with it
	slot  uint8 // of a request to accumulate
	n     int32 // bytes of its elements
}

// Post posts o: to the link at once if no other goroutine owns the engine, behind what was
// posted before; else the owner does. From any goroutine.
// Hot path.
func (q *Queue) Post(o *Op) {
	e := q.eng
	if !e.prog.Own() {
		e.opt.Inbox.Push(&o.Operation)
		e.prog.Kick()
		return
	}
	e.opt.Inbox.TakeOver()
	o.Start()
	if q.active {
		q.post()
		if q.immediate && q.inflight > 0 {
			if n := q.link.Poll(e.cs[:]); n > 0 {
				e.opt.Protocol.Complete(q.index, e.cs[:n])
			}
		}
	}
	e.prog.Disown()
}

// Start implements pending.Work: it begins o, as the owner.
func (o *Op) Start() {
	q := o.q
	q.eng.prog.AssertOwned()
	switch o.kind {
	case Await:
		q.eng.awaits.add(o)
		return
	case Flush:
		q.flushes.start(o)
		return
	case Fence:
	default:
		q.flushes.begun(o)
	}
	if q.down != nil {
		o.note(q.down)
		o.end()
		return
	}
	if o.more != nil && o.more.user.mem != nil {
		if err := o.more.user.stage(o); err != nil {
			o.note(err)
			o.end()
			return
		}
	}
	if o.kind == Fence && q.ep == nil && q.posts.head == nil {
		o.Drop() // there is nothing before it
		return
	}
	o.queued = true
	q.posts.push(o)
	q.wake()
}

// post hands the queue's operations to its link until that is full. It reports whether any
// were taken.
// Hot path.
func (q *Queue) post() bool {
	did := false
	if len(q.control.list) > 0 {
		did = q.control.post()
	}
	if q.words.redo.head != nil {
		did = q.postList(&q.words.redo) || did
	}
	return q.postList(&q.posts) || did
}

func (q *Queue) postList(l *opList) bool {
	did := false
	c := &q.eng.chain
	for l.head != nil && !(q.full && q.inflight > 0) {
		if q.stops(l.head) {
			if !q.pass(l) {
				return did
			}
			did = true
			continue
		}
		n := c.build(q, l)
		if n == 0 {
			return did // no slot for a result: one comes with a completion
		}
		took, err := q.ep.Post(c.wrs[:n])
		c.took(q, l, took)
		c.giveBack(q, took, n)
		did = did || took > 0
		switch {
		case err == nil:
			q.full = took < n
			if q.full {
				q.counts.Retries++
			}
			if q.full && q.inflight == 0 {
				return true // full of nothing: stay awake and ask again
			}
		case errors.Is(err, fabric.ErrInvalidWR):
			l.spoil(err)
			did = true
		default:
			q.host.Reported(err)
			return true
		}
	}
	return did
}

// stops reports whether o has to wait for its turn, and is no request of the link then.
func (q *Queue) stops(o *Op) bool {
	return o.kind == Fence || o.kind == Accumulate && (q.own || q.requests.state == wayFailed) ||
		q.words.n+len(q.requests.begun) > 0 && q.contended(o)
}

// pass carries out the first operation of the list, which stops the others. It
// returns false if something has to end before.
func (q *Queue) pass(l *opList) bool {
	o := l.head
	switch {
	case q.requests.state == wayFailed && o.kind == Accumulate:
		l.spoil(q.requests.err)
	case q.contended(o):
		return q.lineUp(l)
	case o.kind == Accumulate:
		if q.inflight > 0 {
			return false // this rank's requests to itself
		}
		l.pop().queued = false
		q.requests.self(o)
	case q.loose > 0:
		return false
	default:
		q.fenced = true
		l.pop().Drop()
	}
	return true
}

// spoil ends the first operation of the list, which the link cannot carry out.
func (l *opList) spoil(err error) {
	o := l.pop()
	o.queued = false
	o.note(err)
	if o.pending == 0 {
		o.end()
	}
}

// took notes that the link has the first n requests made.
func (c *chain) took(q *Queue, l *opList, n int) {
	for i := range n {
		m := &c.made[i]
		m.o.pending++
		if m.o.kind == Accumulate {
			q.requests.took(m)
		}
		if m.last {
			l.pop()
			m.o.queued = false
			if m.o.kind.isLoose() {
				m.o.loosen()
			}
		}
	}
	q.inflight += n
	if n > 0 {
		q.fenced = false
	}
}

// giveBack undoes the making of requests from the took-th on, which the link did not take,
// the last first, so that each operation ends where it began.
func (c *chain) giveBack(q *Queue, took, n int) {
	for i := n - 1; i >= took; i-- {
		m := &c.made[i]
		if m.o.kind == Accumulate {
			q.requests.giveBack(m)
			m.o.more.phase = m.phase
		} else if x := m.o.more; x != nil && !x.head {
			x.cur.Seek(m.mark)
			x.phase = m.phase
		}
		if m.begun { // what is before it must not line up behind it
			q.words.leave(m.o)
		}
		if m.o.pending == 0 {
			q.eng.inflight.release(m.o)
		}
	}
}

// piece is the local side of a request of one piece.
func (c *chain) piece(sge fabric.SGE) []fabric.SGE {
	local := c.sges[c.used : c.used+1 : c.used+1]
	local[0] = sge
	c.used++
	return local
}

// build makes work requests of the first operations of the list.
// Hot path.
func (c *chain) build(q *Queue, l *opList) int {
	n := 0
	c.used = 0
	for o := l.head; o != nil && n < maxChain && !q.stops(o); o = o.next {
		if o.more != nil && !o.more.head && o.kind != Emulated {
			var whole bool
			if n, whole = c.buildMore(q, o, n); !whole {
				break
			}
			continue
		}
		if o.kind.isAtomic() {
			if !q.link.results.take(o) {
				break
			}
			o.sge = q.link.results.sge(o.slot)
		}
		if c.used == maxPieces {
			break
		}
		local := c.piece(o.sge)
		m := &c.made[n]
		m.o, m.last, m.begun = o, true, false
		if o.kind == Emulated && !o.more.head {
			q.words.begin(o)
			m.begun = true
		}
		wr := &c.wrs[n] // field by field: a literal would be made elsewhere and copied
		wr.ID, wr.Op, wr.Flags, wr.Local = q.eng.inflight.id(o), o.kind.request(), fabric.FlagSignaled, local
		wr.RemoteAddr, wr.RKey, wr.Compare, wr.Operand = o.remote, o.rkey, o.compare, o.operand
		n++
	}
	if q.fenced && n > 0 {
		c.wrs[0].Flags |= fabric.FlagFence
	}
	return n
}

// buildMore makes work requests of an operation of many pieces or several steps,
// from where it has come to. It returns how many there are now, and whether
// nothing of the operation is left.
func (c *chain) buildMore(q *Queue, o *Op, n int) (int, bool) {
	x := o.more
	for ; n < maxChain; n++ {
		m := made{o: o, mark: x.cur.Mark(), phase: x.phase}
		wr := &c.wrs[n]
		*wr = fabric.WR{Op: fabric.OpWrite, Flags: fabric.FlagSignaled}
		switch {
		case o.kind == Accumulate:
			if !q.requests.build(c, o, &m, wr) {
				return n, false
			}
			wr.ID = uint64(m.slot) << slotShift
		case x.phase == phaseData:
			room := min(q.pieces, maxPieces-c.used)
			if room == 0 || room < q.pieces && n > 0 && !x.cur.Done() {
				return n, false // full lists are worth another Post
			}
			c.data(q, o, wr, room)
		case x.phase == phaseFlag:
			if c.used == maxPieces || !c.flag(q, o, wr) {
				return n, false
			}
		case x.phase == phaseNotify:
			notify(wr)
			x.phase = phaseNotify.after(o)
		}
		wr.ID |= q.eng.inflight.id(o)
		m.last = x.phase == phaseEnd
		c.made[n] = m
		if m.last {
			return n + 1, true
		}
	}
	return n, false
}

// data makes the next request of the operation's data.
func (c *chain) data(q *Queue, o *Op, wr *fabric.WR, room int) {
	x := o.more
	wr.Op = o.kind.request()
	if x.cur.Len() == 0 { // one piece, or none
		wr.Local = c.piece(o.sge)
		wr.RemoteAddr, wr.RKey = o.remote, o.rkey
	} else {
		k, remote, _ := x.cur.Next(c.sges[c.used:c.used+room], q.max)
		wr.Local = c.sges[c.used : c.used+k : c.used+k]
		wr.RemoteAddr, wr.RKey = remote.Addr, remote.Key
		c.used += k
	}
	if x.cur.Done() {
		x.phase = phaseData.after(o)
	}
}
