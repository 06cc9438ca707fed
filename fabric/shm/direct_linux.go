package shm

import (
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/softlink"
)

var _ fabric.Direct = (*endpoint)(nil)

// Do implements fabric.Direct. Short path.
func (ep *endpoint) Do(wr *fabric.WR) bool {
	if ep.state.Load() != stateUp || ep.q.len() != 0 || len(wr.Local) != 1 {
		return false
	}
	l := &wr.Local[0]
	n := uint64(l.Len)
	switch wr.Op {
	case fabric.OpWrite:
		if wr.Flags&fabric.FlagInline == 0 && !ep.link.keys.Allows(l.LKey, l.Addr, n, 0) {
			return false
		}
	case fabric.OpFetchAdd, fabric.OpCompareSwap:
		if n != 8 || wr.RemoteAddr&7 != 0 {
			return false
		}
		fallthrough
	case fabric.OpRead:
		if !ep.link.keys.Allows(l.LKey, l.Addr, n, fabric.AccessLocalWrite) {
			return false
		}
	default:
		return false
	}
	x := ep.mapped(wr.RKey, wr.RemoteAddr, n, softlink.RemoteNeed(wr.Op))
	if x == nil {
		return false
	}
	at := x.mem + (wr.RemoteAddr - x.base)
	large := n >= ep.link.copies.from.Load()
	switch wr.Op {
	case fabric.OpWrite:
		if large {
			if !putBulk(ep.link.copies.plan.Load(), at, wr.Local, n) {
				ep.fullFence()
			}
		} else if !put(at, wr.Local, n) {
			ep.fullFence()
		}
	case fabric.OpRead:
		if large {
			getBulk(ep.link.copies.plan.Load(), wr.Local, at, n)
			return true
		}
		get(wr.Local, at, n)
		return true // nothing for the peer to see
	default:
		store8(l.Addr, atomic8(wr.Op, at, wr.Compare, wr.Operand))
	}
	ep.wakePeer()
	return true
}

// mapped is lookup of memory that is mapped here; of zero bytes there is none.
func (ep *endpoint) mapped(rkey uint32, addr, n uint64, need fabric.Access) *xlate {
	if n == 0 {
		return nil
	}
	if x := ep.lookup(rkey, addr, n, need); x != nil && x.mem != 0 {
		return x
	}
	return nil
}

// Reach implements fabric.Direct. Short path.
func (ep *endpoint) Reach(rkey uint32, addr uint64, n int) []byte {
	if ep.state.Load() != stateUp || ep.q.len() != 0 {
		return nil
	}
	x := ep.mapped(rkey, addr, uint64(n), fabric.AccessRemoteWrite)
	if x == nil {
		return nil
	}
	orderStores() // behind those of earlier requests
	return fabric.BytesAt(x.mem+(addr-x.base), n)
}

// Stored implements fabric.Direct. Short path.
func (ep *endpoint) Stored() {
	if ep.isUp() {
		ep.fullFence()
		ep.wakePeer()
	}
}
