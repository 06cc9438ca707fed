package initiator

import (
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/onesided"
)

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
	if n := len(s.free); n > 0 && q.direct != nil && q.down == nil && (q.loose == 0 || !q.busy(addr)) {
		i := s.free[n-1]
		if q.try(k.request(), s.sge(i), addr, rkey, compare, operand) {
			receipt, held = e.opt.Receipts.Issue(), onesided.Load64(s.bytes(i))
			q.counts.Atomics++
		}
	}
	e.prog.Disown()
	return receipt, held
}

// try has the link carry out an operation. Owner's.
// Hot path.
func (q *Queue) try(op fabric.Op, sge fabric.SGE, addr uint64, rkey uint32, compare, operand uint64) bool {
	q.eng.prog.AssertOwned()
	q.tried++
	if q.direct == nil || q.down != nil || q.posts.head != nil || q.words.redo.head != nil || len(q.control.list) > 0 ||
		q.eng.opt.Inbox.Pending() || q.tried%inlineTurns == 0 {
		return false
	}
	c := &q.eng.chain
	c.sges[0] = sge
	wr := &c.wrs[0]
	wr.Op, wr.Flags, wr.Local = op, 0, c.sges[:1:1]
	wr.RemoteAddr, wr.RKey, wr.Compare, wr.Operand = addr, rkey, compare, operand
	if !q.direct.Do(wr) {
		return false
	}
	q.fenced = false // all before it is done
	if q.own && op != fabric.OpRead && len(q.eng.awaits.list) > 0 {
		q.eng.awaits.look()
	}
	return true
}
