//go:build linux || darwin || freebsd

package tcp

import (
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/softlink"
)

// Direct access: if both ends of a connection are endpoints of this link, as on a rank's
// connection with itself, requests are executed here, with the checks that the target would
// make, and no frame is sent.

var _ fabric.Direct = (*endpoint)(nil)

// reaches reports whether requests of e may be executed here, behind all that were posted.
// Hot path.
func (e *endpoint) reaches() bool {
	return e.twin != nil && e.req.head == e.req.tail && e.state.Load() == epUp && e.twin.state.Load() == epUp
}

// Do implements fabric.Direct.
// Hot path.
func (e *endpoint) Do(wr *fabric.WR) bool {
	if !e.reaches() || softlink.CheckShape(wr, &linkCaps) != "" || len(wr.Local) != 1 || !e.l.keys.CheckLocal(wr) {
		return false
	}
	s, at := &wr.Local[0], wr.RemoteAddr
	n := int(s.Len)
	if n == 0 {
		return false
	}
	mine := fabric.BytesAt(s.Addr, n)
	there := e.Reach(softlink.RemoteNeed(wr.Op), wr.RKey, at, n)
	if there == nil {
		return false
	}
	switch wr.Op {
	case fabric.OpWrite:
		place(at, mine)
	case fabric.OpRead:
		copy(mine, there)
	case fabric.OpFetchAdd:
		putWord(mine, softlink.FetchAdd(at, wr.Operand))
	default:
		putWord(mine, softlink.CompareSwap(at, wr.Compare, wr.Operand))
	}
	e.Stored(true)
	return true
}

// Reach implements fabric.Direct. Until Stored, Region.Close waits.
// Hot path.
func (e *endpoint) Reach(need fabric.Access, rkey uint32, addr uint64, n int) []byte {
	if n <= 0 || !e.reaches() {
		return nil
	}
	m := &e.l.memory
	if !m.reached {
		m.own.enter()
	}
	if m.keys.Allows(rkey, addr, uint64(n), need) {
		m.reached = true
		return fabric.BytesAt(addr, n)
	}
	if !m.reached {
		m.own.exit()
	}
	return nil
}

// Local implements fabric.Direct.
// Hot path.
func (e *endpoint) Local(need fabric.Access, s fabric.SGE) []byte {
	if !e.l.keys.AllowsLocal(s.LKey, s.Addr, uint64(s.Len), need) {
		return nil
	}
	return fabric.BytesAt(s.Addr, int(s.Len))
}

// Stored implements fabric.Direct. The owner is awake: it makes this call.
// Hot path.
func (e *endpoint) Stored(bool) {
	if m := &e.l.memory; m.reached {
		m.reached = false
		m.own.exit()
	}
}
