package rma

import (
	"runtime/trace"

	"github.com/seed33544411/rma/fabric"
)

// Operations that are complete when the call returns: where the target's memory is
// mapped here, a small put is a few stores, and everything else that an operation under
// way needs (a place to remember it, a work request, a completion, somebody who looks
// for it) costs several times as much as they do. Such an operation has its place in the
// order of operations: it is done at once only where nothing of this peer waits
// before it, by whoever owns the engine, and the link sees to the rest (fabric.Direct).

const (
	// nowMax is the longest operation that is tried this way, in bytes: beyond, the
	// bytes cost more than what is saved, and the engine is held for as long.
	nowMax = 4096

	// nowTurns is how often one goes the long way all the same, so that a goroutine
	// that does nothing but small puts still polls the link.
	nowTurns = 64
)

// now carries out an operation, if that can be done at once. Else the request is zero
// and nothing has happened. The operation has been checked as far as Peer.move does.
// Hot path.
func (p *Peer) now(kind kind, sge fabric.SGE, addr uint64, rkey uint32) Request {
	e := p.eng
	if e.closed.Load() || trace.IsEnabled() || !e.prog.Own() {
		return Request{}
	}
	var r Request
	if t := &e.proto.one; t.atOnce(p, kind.request(), sge, addr, rkey, 0, 0) {
		if r = e.receipt(); kind == kindPut {
			p.counts.Puts++
			p.counts.PutBytes += uint64(sge.Len)
		} else {
			p.counts.Gets++
			p.counts.GetBytes += uint64(sge.Len)
		}
	}
	e.prog.Disown()
	return r
}

// nowWord is now for an atomic of a link. It returns what the word held.
func (p *Peer) nowWord(kind kind, at Remote, compare, operand uint64) (r AtomicRequest) {
	addr, rkey, err := p.reach(at, 8, fabric.AccessRemoteAtomic)
	e := p.eng
	if err != nil || addr%8 != 0 || e.closed.Load() || trace.IsEnabled() || !e.prog.Own() {
		return r
	}
	t := &e.proto.one
	if n := len(t.slots[p.link].free); n > 0 && p.near != nil && p.down == nil && (p.loose == 0 || !p.busy(addr)) {
		s := &t.slots[p.link]
		mem := s.bytes(s.free[n-1])
		if t.atOnce(p, kind.request(), fabric.NewSGE(mem, s.region.LKey()), addr, rkey, compare, operand) {
			r = AtomicRequest{Request: e.receipt(), held: load64(mem)}
			p.counts.Atomics++
		}
	}
	e.prog.Disown()
	return r
}

// atOnce has the link carry out an operation of p. Owner's.
// Hot path.
func (t *initiator) atOnce(p *Peer, kind fabric.Op, sge fabric.SGE, addr uint64, rkey uint32, compare, operand uint64) bool {
	p.nows++
	if p.near == nil || p.down != nil || p.posts.head != nil || p.loops.redo.head != nil || len(p.acks) > 0 || t.inbox.Pending() || p.nows%nowTurns == 0 {
		return false
	}
	t.sges[0] = sge
	wr := &t.wrs[0]
	wr.Op, wr.Flags, wr.Local = kind, 0, t.sges[:1:1]
	wr.RemoteAddr, wr.RKey, wr.Compare, wr.Operand = addr, rkey, compare, operand
	if !p.near.Do(wr) {
		return false
	}
	p.fenced = false // all before it is done
	if p.own && kind != fabric.OpRead && len(t.awaits) > 0 {
		t.look()
	}
	return true
}
