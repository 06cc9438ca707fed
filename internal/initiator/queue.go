package initiator

import (
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/logp"
)

// Host is the rest of a peer: its connection, and the job. Its methods are called by the
// owner, and must not wait, except FetchSlots' and PublishSlots' functions, which run on a
// goroutine of their own.
type Host interface {
	// Connect begins to make a connection, unless that has begun. Queue.Up or
	// Queue.Down follows.
	Connect()

	// Reported takes what the link says of the connection, which is over. Queue.Down
	// follows before it returns.
	Reported(err error)

	// Reason is the error of an operation whose request ended with c.
	Reason(c *fabric.Completion) error

	// Down ends the connection because a request failed with err. Queue.Down follows
	// before it returns.
	Down(err error)

	// Sever closes the connection of a peer that does not keep to the protocol.
	// Queue.Down follows before it returns.
	Sever(err error)

	// Error is the error of an operation with the peer.
	Error(op string, err error) error

	// Hold keeps messages to the peer from being sent, or lets them go on.
	Hold(on bool)

	// Probed is called when a probe has read the peer's word.
	Probed()

	// FetchSlots calls done with what the peer's PublishSlots says, or why there is
	// nothing; not at all once the connection is over.
	FetchSlots(done func(val []byte, err error))

	// PublishSlots calls alloc, and tells the peer's FetchSlots what it returns.
	PublishSlots(alloc func() (val []byte, err error))
}

// Queue is the one-sided operations of this rank with one peer.
type Queue struct {
	// These do not change.
	eng       *Engine
	host      Host
	link      *link
	rank      int
	index     int    // of the link
	pieces    int    // local pieces of one request
	max       uint64 // bytes of one request
	own       bool   // the peer is this process itself
	wakes     bool   // a plain write wakes it
	inline    bool   // the link takes a flag along with its request
	immediate bool   // requests are often complete when they are posted

	// The connection.
	ep     fabric.Endpoint // nil until there is one
	mapped mapped
	down   error // why it is no more

	// What is to be posted, and what has been.
	tried    uint   // operations that were tried to be carried out in the call
	posts    opList // to be posted; the first perhaps in part
	inflight int    // requests posted, not complete
	full     bool   // the link's queue was full: ask again after a completion
	active   bool   // on the engine's list
	fenced   bool   // the next request waits for all reads before it
	loose    int    // operations that do not take place in the order of requests
	control  control
	words    words
	requests requester
	serving  server
	groups   groups
	flushes  flushes
	counts   Counts
}

// Max is how many bytes one request may move. From any goroutine.
func (q *Queue) Max() uint64 { return q.max }

// Immediate reports whether requests are often complete when they are posted. From any
// goroutine.
func (q *Queue) Immediate() bool { return q.immediate }

// Plan has puts and gets of several pieces go the cheapest way by p, which is not changed
// any more, or by the forced way. Owner's.
func (q *Queue) Plan(p *logp.Params, forced bool, way logp.Way) {
	q.eng.prog.AssertOwned()
	g := &q.groups
	g.params, g.forced, g.way = p, forced, way
}

// Up says that there is a connection.
func (q *Queue) Up(ep fabric.Endpoint) {
	q.eng.prog.AssertOwned()
	q.ep = ep
	q.mapped.Direct, _ = ep.(fabric.Direct)
	q.wake()
}

// Down says that the connection is no more, or that it ended for a better reason. What has
// not been posted fails; what has been comes back flushed.
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

// Idle reports whether nothing is left with the link or on a list.
func (q *Queue) Idle() bool {
	q.eng.prog.AssertOwned()
	return q.inflight == 0 && q.flushes.open == 0 && q.posts.head == nil && q.flushes.list.head == nil && !q.active
}

// Renew makes q, which is idle and down, ready for the next connection. It returns memory
// of the last one, which is the caller's to close.
func (q *Queue) Renew() []fabric.Region {
	q.eng.prog.AssertOwned()
	old := q.regions()
	q.ep, q.mapped, q.down = nil, mapped{}, nil
	q.full, q.fenced, q.loose = false, false, 0
	q.control, q.words, q.requests, q.serving = control{q: q}, words{}, requester{q: q}, server{q: q}
	return old
}

// regions is the memory of the connection.
func (q *Queue) regions() (rs []fabric.Region) {
	for _, r := range []fabric.Region{q.requests.mine, q.serving.region} {
		if r != nil {
			rs = append(rs, r)
		}
	}
	return rs
}

// wake puts q on the list of those with something to post, once there is a connection to
// post to.
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

// Operations that are complete when the call returns: where the target's memory is
// mapped here, a small put is a few stores, and everything else that an operation under
// way needs (a place to remember it, a work request, a completion, somebody who looks
// for it) costs several times as much as they do. Such an operation has its place in the
// order of operations: it is done at once only where nothing of this peer waits
// before it, by whoever owns the engine, and the link sees to the rest (fabric.Direct).

const (
	// InlineMax is the longest operation that is worth trying, in bytes: beyond, the
	// bytes cost more than what is saved, and the engine is held for as long.
	InlineMax = 4096

	// inlineTurns is how often one is posted all the same, so that a goroutine that does
	// nothing but small puts still polls the link.
	inlineTurns = 64
)

// TryMove carries out a put or a get of at most InlineMax bytes, which have been checked, if
// that can be done in the call, and returns its receipt. Else it returns 0, and nothing has
// happened. From any goroutine.
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

// TryAtomic is TryMove for an atomic of the link. It returns what the word held.
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

// TryRMW is TryAtomic for an atomic that links do not have.
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

// ready reports whether an operation may be carried out now, in the order of operations.
// Owner's.
// Hot path.
func (q *Queue) ready() bool {
	q.eng.prog.AssertOwned()
	q.tried++
	return q.mapped.Direct != nil && q.down == nil && q.posts.head == nil && q.words.redo.head == nil && len(q.control.list) == 0 &&
		q.groups.open == 0 && !q.eng.opt.Inbox.Pending() && q.tried%inlineTurns != 0
}

// try has the link carry out an operation. Owner's.
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
	q.fenced = false // all before it is done
	if op != fabric.OpRead {
		q.changed()
	}
	return true
}

// changed looks at words that are waited for, if the memory that was written is this rank's.
// Hot path.
func (q *Queue) changed() {
	if q.own && len(q.eng.awaits.list) > 0 {
		q.eng.awaits.look()
	}
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
		o.Drop() // there is nothing before it
		return
	}
	o.queued = true
	q.posts.push(o)
	q.wake()
}

// Explain says how n puts or gets of bytes in all would go, and why. Where the peer's memory is
// mapped here they need neither way. Owner's.
func (q *Queue) Explain(k Kind, n, bytes int) logp.PiecesPlan {
	q.eng.prog.AssertOwned()
	return q.groups.plan(k == Get, n, bytes)
}

// Held reports whether messages are to be kept from being sent, as Host.Hold says.
func (q *Queue) Held() bool { return q.groups.open > 0 }

// Busy reports whether operations are under way.
func (q *Queue) Busy() bool { return q.flushes.open > 0 }

// Unflushed reports whether a flush has something to wait for, or to tell.
func (q *Queue) Unflushed() bool { return q.flushes.open > 0 || q.flushes.forgotten.Load() != nil }

// Blame keeps the error of an operation that nobody waits for, for the next flush. From any
// goroutine.
func (q *Queue) Blame(err error) { q.flushes.forgotten.CompareAndSwap(nil, &err) }

// Queued is how many operations have not been posted.
func (q *Queue) Queued() int { return q.posts.len() }

// InFlight is how many requests are posted and not complete.
func (q *Queue) InFlight() int { return q.inflight }

// Counts are the operations so far.
func (q *Queue) Counts() Counts { return q.counts }

// Used grows with each operation that was tried or has ended.
func (q *Queue) Used() uint64 {
	c := &q.counts
	return uint64(q.tried) + c.Puts + c.Gets + c.Atomics + c.Signals + c.Accumulates
}
