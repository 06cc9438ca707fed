package initiator

import (
	"math"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/onesided"
)

// Operations on mapped memory that would take many requests: transfers of many pieces,
// atomics that links do not implement, accumulates. The owner of the engine executes them
// with its own loads, stores and atomics when they are next to be posted (fabric.Direct).

// carriedRun is the longest run that is copied in this way, in bytes: links have better
// methods for longer ones.
const carriedRun = 64 << 10

// mapped gives access to the peer's mapped memory. It is the endpoint, nil if the link does
// not map memory.
type mapped struct{ fabric.Direct }

// carries reports whether it is worth trying to execute o on mapped memory.
func (m mapped) carries(o *Op) bool {
	if m.Direct == nil || o.more == nil {
		return false
	}
	switch o.kind {
	case Put, Get:
		return o.more.cur.Len() > 0
	case Emulated:
		return !o.more.head
	}
	return o.kind == Accumulate && o.more.acc.pos == 0
}

// carry executes o, which is next to be posted and which carries has accepted, as far as
// that is possible at once. stored: memory of the peer has changed; all: no part of o is
// left to be posted.
func (m mapped) carry(o *Op) (stored, all bool) {
	switch o.kind {
	case Emulated:
		mem := m.Reach(fabric.AccessRemoteAtomic, o.rkey, o.remote, 8)
		if mem == nil {
			return false, false
		}
		o.Value = o.more.rmw.Do(mem)
		stored, all = true, true
	case Accumulate:
		a := &o.more.acc
		mem := m.Reach(fabric.AccessRemoteWrite|fabric.AccessRemoteAtomic, o.rkey, o.remote, len(a.src))
		if mem == nil {
			return false, false
		}
		onesided.Reduce(a.req.Op, a.req.Type, mem, a.src)
		stored, all = true, true
	default:
		stored, all = m.copy(o)
	}
	if stored {
		m.Stored()
	}
	return stored, all
}

// copy transfers the pieces of a put or a get.
func (m mapped) copy(o *Op) (stored, all bool) {
	here, there := fabric.Access(0), fabric.AccessRemoteWrite
	if o.kind == Get {
		here, there = fabric.AccessLocalWrite, fabric.AccessRemoteRead
	}
	did, all := m.copyShape(o, here, there)
	if !did {
		did, all = m.copyPieces(o, here, there)
	}
	return did && o.kind == Put, all
}

// copyShape copies all runs of a shape, or none.
func (m mapped) copyShape(o *Op, here, there fabric.Access) (did, all bool) {
	c := &o.more.cur
	local, remote, run, ok := c.Span()
	if !ok || run > carriedRun || max(local.Len, remote.Len) > math.MaxInt32 {
		return false, false
	}
	mine := m.Local(here, fabric.SGE{Addr: local.Addr, Len: uint32(local.Len), LKey: local.Key})
	theirs := m.Reach(there, remote.Key, remote.Addr, int(remote.Len))
	if mine == nil || theirs == nil {
		return false, false
	}
	c.Copy(mine, theirs, o.kind == Get)
	return true, true
}

// copyPieces copies the pieces of a vector up to the first one that cannot be copied in
// this way.
func (m mapped) copyPieces(o *Op, here, there fabric.Access) (did, all bool) {
	c := &o.more.cur
	var sges [1]fabric.SGE
	for !c.Done() {
		at := c.Mark()
		_, remote, n := c.Next(sges[:], carriedRun+1)
		var mine, theirs []byte
		if n <= carriedRun {
			mine, theirs = m.Local(here, sges[0]), m.Reach(there, remote.Key, remote.Addr, int(n))
		}
		if mine == nil || theirs == nil {
			c.Seek(at)
			return did, false
		}
		if did = true; o.kind == Get {
			copy(mine, theirs)
		} else {
			copy(theirs, mine)
		}
	}
	return did, true
}
