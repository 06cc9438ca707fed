package initiator

import (
	"encoding/binary"
	"math"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/mr"
)

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
// in the call, and returns its receipt. Otherwise it returns 0 and has no effect. sge lies in
// local. Any goroutine may call it.
// Hot path.
func (q *Queue) TryMove(k Kind, local *mr.Registration, sge fabric.SGE, addr uint64, rkey uint32) (receipt uint64) {
	e := q.eng
	if !e.prog.Own() {
		return 0
	}
	if local.Live() && q.try(k.request(), sge, addr, rkey, 0, 0) {
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
			stored(q)
			q.counts.Atomics++
			receipt = e.opt.Receipts.Issue()
		}
	}
	e.prog.Disown()
	return receipt, held
}

// TrySignal is q.TryMove for a put of at most InlineMax checked bytes, or of none, that ends
// with a signal: the word at flag, which is checked as well, becomes v or, with add, gets v
// added. If it returns 0 because the peer withdraws the word meanwhile, the data may be in place.
// local is nil without data.
// Hot path.
func TrySignal(q *Queue, local *mr.Registration, sge fabric.SGE, addr uint64, rkey uint32, flag uint64, flagKey uint32, add bool, v uint64) (receipt uint64) {
	e := q.eng
	if !e.prog.Own() {
		return 0
	}
	if q.loose == 0 && q.ready() && (local == nil || local.Live()) {
		need := fabric.AccessRemoteWrite
		if add {
			need = fabric.AccessRemoteAtomic
		}
		if mem := q.mapped.Reach(need, flagKey, flag, 8); mem != nil {
			if sge.Len > 0 {
				mem = nil
				if q.mapped.write(sge, addr, rkey) {
					mem = q.mapped.Reach(need, flagKey, flag, 8) // again: to reach the data may have unmapped it
				}
			}
			if mem != nil {
				if add {
					m := onesided.RMW{Func: onesided.Add, Arg: v}
					m.Do(mem)
				} else {
					onesided.Release64(mem, v)
				}
				q.counts.Signals++
				q.counts.PutBytes += uint64(sge.Len)
				receipt = e.opt.Receipts.Issue()
			}
			stored(q)
		}
	}
	e.prog.Disown()
	return receipt
}

// TryBytes is q.TryMove for at most InlineMax bytes of memory of any kind.
// Hot path.
func TryBytes(q *Queue, k Kind, mem []byte, addr uint64, rkey uint32) (receipt uint64) {
	e := q.eng
	if !e.prog.Own() {
		return 0
	}
	need := fabric.AccessRemoteWrite
	if k == Get {
		need = fabric.AccessRemoteRead
	}
	if q.ready() {
		if there := q.mapped.Reach(need, rkey, addr, len(mem)); there != nil {
			copyWord(k == Put, there, mem, addr)
			stored(q)
			if k == Put {
				q.counts.Puts++
				q.counts.PutBytes += uint64(len(mem))
			} else {
				q.counts.Gets++
				q.counts.GetBytes += uint64(len(mem))
			}
			receipt = e.opt.Receipts.Issue()
		}
	}
	e.prog.Disown()
	return receipt
}

// write copies one piece to the memory of the peer at addr. Stored must follow. It returns
// false, without effect, if that is not possible at present.
// Hot path.
func (m mapped) write(sge fabric.SGE, addr uint64, rkey uint32) bool {
	from := m.Local(0, sge)
	to := m.Reach(fabric.AccessRemoteWrite, rkey, addr, int(sge.Len))
	if from == nil || to == nil {
		return false
	}
	copyWord(true, to, from, addr)
	return true
}

// copyWord copies to or from the memory there, of a peer, whose address is addr: a last
// word that is aligned last, in one store, and a word alone in one load, as links do. Only
// stored orders later loads behind the stores.
// Hot path.
func copyWord(put bool, there, here []byte, addr uint64) {
	n := len(there) - 8
	switch aligned := n >= 0 && (addr+uint64(n))%8 == 0; {
	case put && aligned:
		last := binary.NativeEndian.Uint64(here[n:]) // before the copy: the two may overlap
		copy(there[:n], here)
		onesided.Release64(there[n:], last)
	case put:
		copy(there, here)
	case n == 0 && aligned:
		binary.NativeEndian.PutUint64(here, onesided.Load64(there))
	default:
		copy(here, there)
	}
}

// stored ends the use of memory that Reach has returned. Owner's.
// Hot path.
func stored(q *Queue) {
	q.eng.prog.AssertOwned()
	q.mapped.Stored(true)
	q.fenced = false // all operations before it are complete
	q.changed()
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
	wr.Op, wr.Flags, wr.Local = op, fabric.FlagQuiet, c.sges[:1:1]
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

// Operations on mapped memory that would take many requests: transfers of many pieces,
// atomics that links do not implement, accumulates. The owner of the engine executes them
// with its own loads, stores and atomics when they are next to be posted (fabric.Direct).

// carriedRun is the longest run of another rank's memory that is copied in this way, in
// bytes: links have better methods for longer ones.
const carriedRun = 64 << 10

// carriedTurn is how many bytes of an operation are moved or combined at a time, some tenths of a
// millisecond of atomic instructions: then operations with other peers and messages have a turn, the target may
// close its memory, and this rank's heartbeat goes on.
const carriedTurn = 256 << 10

// rest is what is left of an operation after a turn.
type rest int

const (
	restNone   rest = iota
	restLater       // a part, for the next turn
	restPosted      // a part that cannot be executed on mapped memory now and is to be posted
)

// carries reports whether it is worth trying to execute o on mapped memory, and nothing that the
// target executes must come before.
func carries(q *Queue, o *Op) bool {
	if q.mapped.Direct == nil || o.more == nil {
		return false
	}
	switch o.kind {
	case Put, Get:
		return o.more.cur.Len() > 0
	case Emulated:
		return !o.more.head
	}
	return o.kind == Accumulate && len(q.requests.begun) == 0
}

// carry executes o, which is next to be posted and which carries has accepted, as far as
// that is possible in one turn. stored: memory of the peer has changed.
func (m mapped) carry(o *Op) (stored bool, left rest) {
	switch o.kind {
	case Emulated:
		mem := m.Reach(fabric.AccessRemoteAtomic, o.rkey, o.remote, 8)
		if mem == nil {
			return false, restPosted
		}
		o.Value = o.more.rmw.Do(mem)
		return true, restNone
	case Accumulate:
		a := &o.more.acc
		if a.how.Type != 0 {
			return o.combine(func(key uint32, addr uint64, n int) []byte { return m.Reach(a.how.Needs(), key, addr, n) })
		}
		mem := m.Reach(fabric.AccessRemoteWrite|fabric.AccessRemoteAtomic, o.rkey, o.remote, min(len(a.src), carriedTurn))
		if mem == nil {
			return false, restPosted
		}
		onesided.Reduce(a.req.Op, a.req.Type, mem, a.src[:len(mem)])
		return true, o.combined(len(mem))
	}
	return m.copy(o)
}

// combined takes n bytes off an accumulate of one piece, none of which a request has taken.
func (o *Op) combined(n int) rest {
	a := &o.more.acc
	a.src, o.remote, a.n = a.src[n:], o.remote+uint64(n), a.n-uint64(n)
	if len(a.src) > 0 {
		return restLater
	}
	return restNone
}

// copy transfers the pieces of a put or a get.
func (m mapped) copy(o *Op) (stored bool, left rest) {
	here, there := fabric.Access(0), fabric.AccessRemoteWrite
	if o.kind == Get {
		here, there = fabric.AccessLocalWrite, fabric.AccessRemoteRead
	}
	if m.copyShape(o, here, there) {
		if !o.more.cur.Done() {
			left = restLater
		}
		return o.kind == Put, left
	}
	did, left := m.copyPieces(o, here, there)
	return did && o.kind == Put, left
}

// copyShape copies runs of a shape in one turn, or none. If it cannot continue, because the memory is no longer mapped, all
// runs are to be transferred in another way.
func (m mapped) copyShape(o *Op, here, there fabric.Access) (did bool) {
	c := &o.more.cur
	local, remote, run, ok := c.Span()
	if !ok || uint64(run) > m.longest || max(local.Len, remote.Len) > math.MaxInt32 {
		return false
	}
	mine := m.Local(here, fabric.SGE{Addr: local.Addr, Len: uint32(local.Len), LKey: local.Key})
	theirs := m.Reach(there, remote.Key, remote.Addr, int(remote.Len))
	if mine == nil || theirs == nil {
		c.Recopy()
		return false
	}
	c.Copy(mine, theirs, o.kind == Get, carriedTurn)
	return true
}

// copyPieces copies the pieces of a vector up to the first one that cannot be copied in
// this way.
func (m mapped) copyPieces(o *Op, here, there fabric.Access) (did bool, left rest) {
	c := &o.more.cur
	var sges [1]fabric.SGE
	for turn := c.Pos() + carriedTurn; !c.Done(); {
		at := c.Mark()
		if at.Pos() >= turn {
			return did, restLater
		}
		_, remote, n := c.Next(sges[:], m.longest+1)
		var mine, theirs []byte
		if n <= m.longest {
			mine, theirs = m.Local(here, sges[0]), m.Reach(there, remote.Key, remote.Addr, int(n))
		}
		if mine == nil || theirs == nil {
			c.Seek(at)
			return did, restPosted
		}
		if did = true; o.kind == Get {
			copy(mine, theirs)
		} else {
			copy(theirs, mine)
		}
	}
	return did, restNone
}

// combine executes the pieces of an accumulate on memory that reach returns, up to the first
// of which it returns none.
func (o *Op) combine(reach func(key uint32, addr uint64, n int) []byte) (did bool, left rest) {
	c, a := &o.more.cur, &o.more.acc
	var sges [1]fabric.SGE
	for turn := c.Pos() + carriedTurn; !c.Done(); {
		at := c.Mark()
		if at.Pos() >= turn {
			return did, restLater
		}
		_, remote, n := c.Next(sges[:], carriedRun)
		mem := reach(remote.Key, remote.Addr, int(n))
		if mem == nil {
			c.Seek(at)
			return did, restPosted
		}
		var old []byte
		if a.how.Fetch {
			old = a.old[at.Pos():at.Pos()]
		}
		a.how.Append(old, mem, fabric.BytesAt(sges[0].Addr, int(n)))
		did = true
	}
	return did, restNone
}

// carry executes the first operation of the list on mapped memory.
func (q *Queue) carry(l *opList) rest {
	stored, left := q.mapped.carry(l.head)
	if stored || q.own {
		q.mapped.Stored(true)
	}
	if stored {
		q.changed()
	}
	if left == restNone {
		q.fenced = false // all operations before it are complete
		l.pop().posted()
	}
	return left
}
