package initiator

import (
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/logp"
)

// Host is the rest of a peer: its connection and the job. The owner calls its methods,
// which must not wait, except for the functions passed to FetchSlots and PublishSlots,
// which run on goroutines of their own.
type Host interface {
	// Connect starts to make a connection, unless it was called before. Queue.Up or
	// Queue.Down follows.
	Connect()

	// Reported handles the link's report that the connection has ended. Queue.Down follows
	// before it returns.
	Reported(err error)

	// Reason returns the error of an operation whose request ended with c.
	Reason(c *fabric.Completion) error

	// Down ends the connection because a request failed with err. Queue.Down follows
	// before it returns.
	Down(err error)

	// Sever closes the connection of a peer that violates the protocol. Queue.Down follows
	// before it returns.
	Sever(err error)

	// Error wraps the error of an operation with the peer.
	Error(op string, err error) error

	// Hold stops or resumes sending messages to the peer.
	Hold(on bool)

	// Probed is called when a probe has read the peer's word.
	Probed()

	// FetchSlots calls done with the value from the peer's PublishSlots, or with an error.
	// It does not call done once the connection has ended.
	FetchSlots(done func(val []byte, err error))

	// PublishSlots calls alloc and publishes its result to the peer's FetchSlots.
	PublishSlots(alloc func() (val []byte, err error))
}

// Queue holds the one-sided operations of this rank with one peer.
type Queue struct {
	// These do not change.
	eng       *Engine
	host      Host
	link      *link
	rank      int
	index     int    // of the link
	pieces    int    // local pieces of one request
	max       uint64 // bytes of one request
	own       bool   // the peer is this rank
	wakes     bool   // a plain write wakes it
	inline    bool   // the link copies a flag with its request
	immediate bool   // requests are often complete when the post returns

	// The connection.
	ep     fabric.Endpoint // nil until there is one
	mapped mapped
	down   error // why the connection ended

	// What is to be posted, and what has been.
	tried    uint   // operations that TryMove and its like attempted
	posts    opList // to be posted; the first may be posted in part
	inflight int    // requests posted, not complete
	full     bool   // the link's queue was full: retry after a completion
	active   bool   // on the engine's list
	fenced   bool   // the next request waits for all reads before it
	loose    int    // operations that are executed out of the order of requests
	control  control
	words    words
	requests requester
	serving  server
	groups   groups
	flushes  flushes
	counts   Counts
}

// Max returns how many bytes one request may move. Any goroutine may call it.
func (q *Queue) Max() uint64 { return q.max }

// Immediate reports whether requests are often complete when the post returns. Any
// goroutine may call it.
func (q *Queue) Immediate() bool { return q.immediate }

// Plan makes puts and gets of several pieces use the cheapest method by p, which must not
// change any more, or the forced one. Owner's.
func (q *Queue) Plan(p *logp.Params, forced bool, way logp.Way) {
	q.eng.prog.AssertOwned()
	g := &q.groups
	g.params, g.forced, g.way = p, forced, way
}

// Up sets the connection.
func (q *Queue) Up(ep fabric.Endpoint) {
	q.eng.prog.AssertOwned()
	q.ep = ep
	q.mapped.Direct, _ = ep.(fabric.Direct)
	q.wake()
}

// Down ends the connection with err; a later call may replace the reason. Operations that
// are not posted fail; posted ones are flushed by the link.
func (q *Queue) Down(err error) {
	q.eng.prog.AssertOwned()
	q.down = err
	for _, l := range []*opList{&q.posts, &q.words.redo} {
		for l.head != nil {
			l.spoil(err)
		}
	}
	q.control.list = q.control.list[:0]
	q.requests.end(err)
	if b := &q.eng.backoff; len(b.list) > 0 {
		b.resume()
	}
	if w := &q.eng.awaits; len(w.list) > 0 {
		w.look()
	}
}

// Idle reports whether the queue has no requests on the link and no operations listed.
func (q *Queue) Idle() bool {
	q.eng.prog.AssertOwned()
	return q.inflight == 0 && q.flushes.open == 0 && q.posts.head == nil && q.flushes.list.head == nil && !q.active
}

// Renew prepares q, which is idle and down, for the next connection. It returns memory of
// the last connection, which the caller must close.
func (q *Queue) Renew() []fabric.Region {
	q.eng.prog.AssertOwned()
	old := q.regions()
	q.ep, q.mapped, q.down = nil, mapped{}, nil
	q.full, q.fenced, q.loose = false, false, 0
	q.control, q.words, q.requests, q.serving = control{q: q}, words{}, requester{q: q}, server{q: q}
	return old
}

// regions returns the memory of the connection.
func (q *Queue) regions() (rs []fabric.Region) {
	for _, r := range []fabric.Region{q.requests.mine, q.serving.region} {
		if r != nil {
			rs = append(rs, r)
		}
	}
	return rs
}

// wake adds q to the queues with something to post, once it has a connection.
func (q *Queue) wake() {
	if q.ep == nil {
		q.host.Connect()
		return
	}
	if !q.active {
		q.active = true
		q.eng.active = append(q.eng.active, q)
	}
}

// Operations that are complete when the call returns. If the target's memory is mapped, a
// small put is a few stores. The rest of a posted operation (an Op, a work request, a
// completion, and a poll to find it) costs several times as much. Order is kept: such an
// operation is executed at once only if no operation with this peer waits before it and the
// caller owns the engine; the link ensures the rest (fabric.Direct).

const (
	// InlineMax is the longest operation, in bytes, that is worth trying: above it the copy
	// costs more than the method saves, and holds the engine for as long.
	InlineMax = 4096

	// inlineTurns: one of so many operations is posted all the same, so that a goroutine
	// that only does small puts still polls the link.
	inlineTurns = 64
)

// TryMove executes a put or a get of at most InlineMax checked bytes, if that is possible
// in the call, and returns its receipt. Otherwise it returns 0 and has no effect. Any
// goroutine may call it.
// Hot path.
func (q *Queue) TryMove(k Kind, sge fabric.SGE, addr uint64, rkey uint32) (receipt uint64) {
	e := q.eng
	if !e.prog.Own() {
		return 0
	}
	if q.try(k.request(), sge, addr, rkey, 0, 0) {
		receipt = e.opt.Receipts.Issue()
		if k == Put {
			q.counts.Puts++
			q.counts.PutBytes += uint64(sge.Len)
		} else {
			q.counts.Gets++
			q.counts.GetBytes += uint64(sge.Len)
		}
	}
	e.prog.Disown()
	return receipt
}

// TryAtomic is TryMove for an atomic of the link. It returns the previous value of the
// word.
// Hot path.
func (q *Queue) TryAtomic(k Kind, addr uint64, rkey uint32, compare, operand uint64) (receipt, held uint64) {
	e := q.eng
	if !e.prog.Own() {
		return 0, 0
	}
	s := &q.link.results
	if n := len(s.free); n > 0 && q.mapped.Direct != nil && q.down == nil && (q.loose == 0 || !q.busy(addr)) {
		i := s.free[n-1]
		if q.try(k.request(), s.sge(i), addr, rkey, compare, operand) {
			receipt, held = e.opt.Receipts.Issue(), onesided.Load64(s.bytes(i))
			q.counts.Atomics++
		}
	}
	e.prog.Disown()
	return receipt, held
}

// TryRMW is TryAtomic for an atomic that links do not implement.
// Hot path.
func (q *Queue) TryRMW(addr uint64, rkey uint32, m *onesided.RMW) (receipt, held uint64) {
	e := q.eng
	if !e.prog.Own() {
		return 0, 0
	}
	if q.ready() && (q.loose == 0 || !q.busy(addr)) {
		if mem := q.mapped.Reach(fabric.AccessRemoteAtomic, rkey, addr, 8); mem != nil {
			held = m.Do(mem)
			q.mapped.Stored()
			q.fenced = false
			q.changed()
			q.counts.Atomics++
			receipt = e.opt.Receipts.Issue()
		}
	}
	e.prog.Disown()
	return receipt, held
}

// ready reports whether an operation may be executed now without breaking the order of
// operations. Owner's.
// Hot path.
func (q *Queue) ready() bool {
	q.eng.prog.AssertOwned()
	q.tried++
	return q.mapped.Direct != nil && q.down == nil && q.posts.head == nil && q.words.redo.head == nil && len(q.control.list) == 0 &&
		q.groups.open == 0 && !q.eng.opt.Inbox.Pending() && q.tried%inlineTurns != 0
}

// try makes the link execute an operation at once, if it can. Owner's.
// Hot path.
func (q *Queue) try(op fabric.Op, sge fabric.SGE, addr uint64, rkey uint32, compare, operand uint64) bool {
	q.eng.prog.AssertOwned()
	if !q.ready() {
		return false
	}
	c := &q.eng.chain
	c.sges[0] = sge
	wr := &c.wrs[0]
	wr.Op, wr.Flags, wr.Local = op, 0, c.sges[:1:1]
	wr.RemoteAddr, wr.RKey, wr.Compare, wr.Operand = addr, rkey, compare, operand
	if !q.mapped.Do(wr) {
		return false
	}
	q.fenced = false // all operations before it are complete
	if op != fabric.OpRead {
		q.changed()
	}
	return true
}

// changed checks the awaited words if the memory that was written is this rank's.
// Hot path.
func (q *Queue) changed() {
	if q.own && len(q.eng.awaits.list) > 0 {
		q.eng.awaits.look()
	}
}

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
		if q.immediate && q.inflight > 0 {
			if n := q.link.Poll(e.cs[:]); n > 0 {
				e.opt.Protocol.Complete(q.index, e.cs[:n])
			}
		}
	}
	e.prog.Disown()
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
	}
	if q.down != nil {
		o.note(q.down)
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
	o.queued = true
	q.posts.push(o)
	q.wake()
}

// Explain returns how n puts or gets with the given sum of bytes would be sent, and why.
// With mapped memory they need neither method. Owner's.
func (q *Queue) Explain(k Kind, n, bytes int) logp.PiecesPlan {
	q.eng.prog.AssertOwned()
	return q.groups.plan(k == Get, n, bytes)
}

// Held reports whether messages must not be sent, see Host.Hold.
func (q *Queue) Held() bool { return q.groups.open > 0 }

// Busy reports whether operations are in flight.
func (q *Queue) Busy() bool { return q.flushes.open > 0 }

// Unflushed reports whether a flush has something to wait for or to report.
func (q *Queue) Unflushed() bool { return q.flushes.open > 0 || q.flushes.forgotten.Load() != nil }

// Blame keeps the error of an operation without a waiter for the next flush. Any goroutine
// may call it.
func (q *Queue) Blame(err error) { q.flushes.forgotten.CompareAndSwap(nil, &err) }

// Queued returns the number of operations that are not posted.
func (q *Queue) Queued() int { return q.posts.len() }

// InFlight returns the number of requests that are posted and not complete.
func (q *Queue) InFlight() int { return q.inflight }

// Counts returns the counters.
func (q *Queue) Counts() Counts { return q.counts }

// Used returns a number that grows with each operation that was tried or has ended.
func (q *Queue) Used() uint64 {
	c := &q.counts
	return uint64(q.tried) + c.Puts + c.Gets + c.Atomics + c.Signals + c.Accumulates
}
