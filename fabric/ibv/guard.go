package ibv

import (
	"encoding/binary"
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/verbs"
)

// The package comment describes guarded connections and their reasons under "rdma_rxe".

// VendorLostResult is the vendor code, of StatusUnknown, of an atomic that was executed and
// whose result did not arrive although the device reports success.
const VendorLostResult = 0x10577

func isAtomic(op fabric.Op) bool { return op == fabric.OpFetchAdd || op == fabric.OpCompareSwap }

// held reports whether w must wait for outstanding requests. The wait ends because on a
// guarded connection the device completes every request by itself, and on other connections
// of rdma_rxe every read and atomic.
func (e *endpoint) held(w *fabric.WR) bool {
	if e.mail.crowded(w) {
		return true
	}
	if e.guarded && isAtomic(w.Op) && !e.l.noAtomics {
		return e.tail != e.head
	}
	return e.reads != 0 && w.Flags&fabric.FlagFence != 0
}

// silent reports whether Post must not post to the device: nothing has completed for the
// device's time-out, and every further request would restart the timer. Nor to a carrier that the endpoint leaves.
func silent(e *endpoint) bool {
	if e.carry != nil {
		return e.again.leaving
	}
	if !e.guarded {
		return false
	}
	starts(e)
	return cpu.Ticks()-e.moved > e.timeout
}

// starts is called before a request is made: the time in which the device has to complete one begins with
// the first that is outstanding.
func starts(e *endpoint) {
	if e.head == e.tail {
		e.moved = cpu.Ticks()
	}
}

// errStuck is why a queue pair was replaced that look has found.
var errStuck = fmt.Errorf("%w: the device neither completes requests nor gives up", fabric.ErrFlushed)

// look looks for endpoints that continue better on another queue pair: those whose device has completed nothing for
// twice the time after which it was to give up, as rdma_rxe may do beside a network that comes and goes, and
// those that can return to the link's own port.
func look(l *Link) {
	if !l.tells {
		return
	}
	for _, e := range l.failing() {
		switch {
		case e == nil || !e.keeps.Load() || e.state.Load() != stConnected:
		case e.carry != nil:
			seek(e.again)
		case e.guarded && e.head != e.tail && cpu.Ticks()-e.moved > 2*(maxRetries+1)*e.timeout:
			if e.again.takes(verbs.WCFlushErr) {
				suspend(e, errStuck)
			}
		case e.over != nil && e.again.returns():
			suspend(e, errHome)
		}
	}
}

// soften adapts request d in slot s, made from w, to rdma_rxe.
func (e *endpoint) soften(w *fabric.WR, d *verbs.SendWR, s *slot) {
	if w.Op != fabric.OpWrite {
		e.count(s)
		d.Flags |= verbs.SendSignaled
	}
	if !e.guarded {
		return
	}
	d.Flags |= verbs.SendSignaled
	switch {
	case isAtomic(w.Op):
		if e.carry == nil {
			e.poison(w, s)
		}
	case len(d.SGL) > 0:
	case d.Op == verbs.OpWriteWithImm:
		d.Op = verbs.OpSendWithImm
	default:
		d.Op = verbs.OpSend
	}
}

// count marks s, which the device completes by itself, as a slot that held waits for.
func (e *endpoint) count(s *slot) {
	if e.l.soft {
		s.flags |= slotCounted
		e.reads++
	}
}

func (e *endpoint) uncount(s *slot) {
	if s.flags&slotCounted != 0 {
		e.reads--
	}
}

// completed is called for every slot that the device has completed.
func (e *endpoint) completed(s *slot) {
	e.uncount(s)
	if e.guarded {
		e.moved = cpu.Ticks()
	}
}

// poison fills the local piece of an atomic with a random value that its result is unlikely
// to equal. It leaves pieces alone that the device will refuse.
func (e *endpoint) poison(w *fabric.WR, s *slot) {
	e.cell = e.l.cellOf(w.Local[0])
	if e.cell != nil {
		s.flags |= slotPoison
		e.before = binary.NativeEndian.Uint64(e.cell)
		binary.NativeEndian.PutUint64(e.cell, e.poisonWord)
	}
}

// cure restores the result buffer of an atomic that will not succeed.
func (e *endpoint) cure() {
	if e.cell != nil {
		binary.NativeEndian.PutUint64(e.cell, e.before)
		e.cell = nil
	}
}

// heal does so if that is the atomic in s.
func heal(e *endpoint, s *slot) {
	if s.flags&slotPoison != 0 {
		e.cure()
		s.flags &^= slotPoison
	}
}

// lost reports whether the result of the atomic in s is missing.
func (e *endpoint) lost(s *slot) bool {
	if s.flags&slotPoison == 0 {
		return false
	}
	if binary.NativeEndian.Uint64(e.cell) == e.poisonWord {
		return true
	}
	e.cell = nil
	return false
}
