package initiator

import (
	"cmp"
	"encoding/binary"
	"errors"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/pending"
	"github.com/seed33544411/rma/internal/progress"
	"github.com/seed33544411/rma/logp"
)

// Post posts o behind the operations posted before: to the link at once if no other
// goroutine owns the engine, otherwise the owner does. Any goroutine may call it.
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
		if q.immediate && (q.inflight > 0 || q.own) {
			if n := q.link.Poll(e.cs[:]); n > 0 {
				completed(e, q.index, e.cs[:n])
			}
		}
	}
	e.prog.Disown()
}

// completed handles completions that a post has polled.
// Hot path.
func completed(e *Engine, link int, cs []fabric.Completion) {
	defer progress.Crash() //hot:allow a callback may panic
	e.opt.Protocol.Complete(link, cs)
}

// Start implements pending.Work: the owner calls it to start o.
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
		q.rails.turn()
	}
	if q.down != nil || o.Stale() {
		o.note(cmp.Or(q.down, pending.ErrForeign))
		o.posted()
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
		o.Drop() // no operation precedes it
		return
	}
	q.last++
	o.queued, o.place = true, q.last
	q.posts.push(o)
	q.wake()
}

// post posts the queue's operations to its link until the link is full. It reports whether
// the link took any.
// Hot path.
func (q *Queue) post() bool {
	did := false
	if len(q.control.list) > 0 {
		did = q.control.post()
	}
	if len(q.rails.due) > 0 {
		did = q.rails.post() || did
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
		if o := l.head; q.stops(o) {
			if !q.pass(l) {
				return did
			}
			if did = true; l.head == o && o.kind == Accumulate {
				return did // the rest follows in the next turn
			}
			continue
		}
		if q.groups.open == 0 && carries(q, l.head) {
			left := q.carry(l)
			if left == restLater {
				return true
			}
			if left == restNone {
				did = true
				continue
			}
		}
		n := c.build(q, l)
		if n == 0 {
			return did // no slot for a result: a completion frees one
		}
		if q.local(c, l, n) > 0 {
			did = true
			continue
		}
		var took int
		var err error
		if c.pieces > 0 && c.timed(q, n) {
			took, err = c.timePost(q, n)
		} else {
			took, err = q.ep.Post(c.wrs[:n])
		}
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
				return true // full with nothing in flight: stay awake and retry
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

// local executes the first of the n requests that c holds for operations of l here, as many
// as possible, if this rank is their target, and completes them. It returns their number;
// the others are given back.
func (q *Queue) local(c *chain, l *opList, n int) (done int) {
	if !q.own || q.mapped.Direct == nil {
		return 0
	}
	for done < n && c.wrs[done].Flags&fabric.FlagNotify == 0 && q.mapped.Do(&c.wrs[done]) {
		done++
	}
	if done == 0 {
		return 0
	}
	c.took(q, l, done)
	c.giveBack(q, done, n)
	for i := range done {
		q.eng.Complete(&fabric.Completion{ID: c.wrs[i].ID, Op: c.wrs[i].Op})
	}
	q.changed()
	return done
}

// timed reports whether the post of n requests is a chain that is to be timed: all of them
// pieces of one operation.
func (c *chain) timed(q *Queue, n int) bool {
	o := c.made[0].o
	return c.pieces == n && n > 1 && c.made[n-1].o == o && o.kind <= Get && q.immediate && q.groups.params != nil && q.groups.chains[o.kind].due()
}

// timePost posts the n requests of a chain for which timed is true, and learns from the time.
func (c *chain) timePost(q *Queue, n int) (took int, err error) {
	k := c.made[0].o.kind
	x := logp.Pieces{N: n, Get: k == Get}
	for _, s := range c.sges[:c.used] {
		x.Bytes += int64(s.Len)
	}
	since := time.Now()
	if took, err = q.ep.Post(c.wrs[:n]); took == n && err == nil {
		cost := x.Cost(q.groups.params, logp.Chain)
		q.groups.chains[k].learn(float64(time.Since(since)) / max(cost.Total(), 1))
	}
	return took, err
}

// stops reports whether o must wait for its turn, and is then not a request of the link.
func (q *Queue) stops(o *Op) bool {
	return o.kind == Fence || o.divides || o.kind == Accumulate && q.own ||
		q.groups.open > 0 && q.holds(o) || q.words.n+len(q.requests.begun) > 0 && q.contended(o)
}

// holds reports whether o must wait for the puts before it that are in groups or divided.
func (q *Queue) holds(o *Op) bool { return q.rails.open > 0 || o.isHeld() }

// isHeld reports whether o must wait until the puts in groups before it are acknowledged.
// Operations that may be sent in groups are not held here.
func (o *Op) isHeld() bool {
	switch o.kind {
	case Accumulate, Fence:
		return false
	case Put, Get:
		return o.more == nil || o.more.cur.Len() == 0
	}
	return true
}

// pass executes the first operation of the list, which stops those behind it. It returns
// false if another operation must end first.
func (q *Queue) pass(l *opList) bool {
	o := l.head
	switch {
	case q.groups.open > 0 && q.rails.open > 0 && (!o.divides || q.groups.open > q.rails.held):
		return false
	case q.contended(o):
		return q.lineUp(l)
	case q.groups.open > q.rails.held && o.isHeld():
		return false
	case o.divides:
		return q.rails.begin(l)
	case o.kind == Accumulate:
		if q.inflight > 0 {
			return false // requests of this rank to itself
		}
		if q.requests.self(o) != restLater {
			l.pop().queued = false
			o.end()
		}
	case q.loose > 0 || q.rails.open > 0:
		return false
	default:
		q.fenced = true
		l.pop().Drop()
	}
	return true
}

// took records that the link took the first n requests.
func (c *chain) took(q *Queue, l *opList, n int) {
	for i := range n {
		m := &c.made[i]
		m.o.pending++
		if m.slot != 0 {
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

// giveBack undoes build for the requests from index took on, which the link did not take.
// It starts with the last, so that each operation returns to its earlier state.
func (c *chain) giveBack(q *Queue, took, n int) {
	for i := n - 1; i >= took; i-- {
		m := &c.made[i]
		if m.slot != 0 {
			q.requests.giveBack(m)
		}
		if x := m.o.more; x != nil && !x.head {
			x.cur.Seek(m.mark)
			x.phase = m.phase
		}
		if m.begun { // operations before it must not line up behind it
			q.words.leave(m.o)
		}
		if m.o.pending == 0 {
			q.eng.inflight.release(m.o)
		}
	}
}

// build makes work requests of the first operations of the list.
// Hot path.
func (c *chain) build(q *Queue, l *opList) int {
	n := 0
	c.used, c.pieces, c.puts = 0, 0, false
	for o := l.head; o != nil && n < maxChain && !q.stops(o) && (n == 0 || !carries(q, o)); o = o.next {
		if o.more != nil && !o.more.head && o.kind != Emulated {
			var whole bool
			if n, whole = c.buildMore(q, o, n); !whole || c.puts {
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
		m.o, m.last, m.begun, m.slot = o, true, false, 0
		if o.kind == Emulated && !o.more.head {
			q.words.begin(o)
			m.begun = true
		}
		wr := &c.wrs[n] // field by field: a literal would be built elsewhere and copied
		wr.ID, wr.Op, wr.Flags, wr.Local = q.eng.inflight.id(o), o.kind.request(), fabric.FlagSignaled|fabric.FlagQuiet, local
		wr.RemoteAddr, wr.RKey, wr.Compare, wr.Operand = o.remote, o.rkey, o.compare, o.operand
		n++
	}
	if q.fenced && n > 0 {
		c.wrs[0].Flags |= fabric.FlagFence
	}
	return n
}

// buildMore makes work requests of an operation of many pieces or several steps, from its
// present position. It returns the number of requests so far, and whether the operation is
// complete.
func (c *chain) buildMore(q *Queue, o *Op, n int) (int, bool) {
	x := o.more
	for ; n < maxChain; n++ {
		m := made{o: o, mark: x.cur.Mark(), phase: x.phase}
		wr := &c.wrs[n]
		*wr = fabric.WR{Op: fabric.OpWrite, Flags: fabric.FlagSignaled | fabric.FlagQuiet}
		switch {
		case o.kind == Accumulate:
			if !q.requests.build(c, o, &m, wr) {
				return n, false
			}
		case x.phase == phaseData && q.requests.takes(o):
			if !q.requests.group(c, o, &m, wr) {
				return n, false
			}
		case x.phase == phaseData:
			if q.groups.open > x.puts {
				return n, false
			}
			room := min(q.pieces, maxPieces-c.used)
			if room == 0 || room < q.pieces && n > 0 && !x.cur.Done() {
				return n, false // continue in the next Post with empty lists
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
		c.pieces++
	}
	if x.cur.Done() {
		x.phase = phaseData.after(o)
	}
}

// flag makes the request that changes the word of a PutSignal. It returns false if no slot
// is free.
func (c *chain) flag(q *Queue, o *Op, wr *fabric.WR) bool {
	s := &q.link.results
	if !s.take(o) {
		return false
	}
	x := o.more
	wr.Local = c.piece(s.sge(o.slot))
	wr.RemoteAddr, wr.RKey = x.flag.addr, x.flag.rkey
	if x.flag.add {
		wr.Op, wr.Operand = fabric.OpFetchAdd, o.operand
	} else {
		binary.NativeEndian.PutUint64(s.bytes(o.slot), o.operand)
		if q.inline {
			wr.Flags |= fabric.FlagInline
		}
		if !q.wakes {
			notify(wr)
		}
	}
	x.phase = phaseFlag.after(o)
	return true
}

// notify makes a request carry the notification of a signal.
func notify(wr *fabric.WR) {
	wr.Flags |= fabric.FlagNotify
	wr.Imm = note(noteSignal, 0, 0)
}
