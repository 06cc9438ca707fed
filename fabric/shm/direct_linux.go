package shm

import (
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/softlink"
)

var _ fabric.Direct = (*endpoint)(nil)

// Do implements fabric.Direct.
// Hot path.
func (ep *endpoint) Do(wr *fabric.WR) bool {
	if ep.state.Load() != stateUp || ep.q.len() != 0 || len(wr.Local) != 1 {
		return false
	}
	l := &wr.Local[0]
	n := uint64(l.Len)
	if n == 0 {
		return false
	}
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
	x := ep.lookup(wr.RKey, wr.RemoteAddr, n, softlink.RemoteNeed(wr.Op))
	if x == nil || x.mem == 0 {
		return false
	}
	fenced := ep.run(x, wr, n)
	if wr.Op == fabric.OpRead {
		return true // nothing for the peer to see
	}
	if !fenced {
		ep.fullFence()
	}
	ep.wakePeer()
	return true
}

// Reach implements fabric.Direct.
// Hot path.
func (ep *endpoint) Reach(rkey uint32, addr uint64, n int) []byte {
	if ep.state.Load() != stateUp || ep.q.len() != 0 || n <= 0 {
		return nil
	}
	x := ep.lookup(rkey, addr, uint64(n), fabric.AccessRemoteWrite)
	if x == nil || x.mem == 0 {
		return nil
	}
	orderStores() // behind those of earlier requests
	return fabric.BytesAt(x.mem+(addr-x.base), n)
}

// Stored implements fabric.Direct.
// Hot path.
func (ep *endpoint) Stored() {
	if ep.isUp() {
		ep.fullFence()
		ep.wakePeer()
	}
}
