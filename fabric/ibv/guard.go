package ibv

import (
	"encoding/binary"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/verbs"
)

// What a guarded connection does differently, and why, is in the package
// comment under "rdma_rxe".

// VendorLostResult is the vendor code, of StatusUnknown, of an atomic that was executed and
// whose result did not arrive although the device reports success.
const VendorLostResult = 0x10577

func isAtomic(op fabric.Op) bool { return op == fabric.OpFetchAdd || op == fabric.OpCompareSwap }

// held reports whether w must wait for outstanding requests. On a guarded connection the
// device completes every request by itself, otherwise on rdma_rxe reads and atomics, so
// that the wait ends.
func (e *endpoint) held(w *fabric.WR) bool {
	if e.guarded && isAtomic(w.Op) {
		return e.tail != e.head
	}
	return e.reads != 0 && w.Flags&fabric.FlagFence != 0
}

// silent reports whether Post has to leave the device alone: nothing has
// completed for as long as the device waits before it repeats a request, and
// every request posted would make it wait as long again.
func (e *endpoint) silent() bool {
	if !e.guarded {
		return false
	}
	if e.head == e.tail {
		e.moved = cpu.Ticks()
		return false
	}
	return cpu.Ticks()-e.moved > e.patience
}

// soften changes the request d in slot s, made of w, for rdma_rxe.
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
		e.poison(w, s)
	case len(d.SGL) > 0:
	case d.Op == verbs.OpWriteWithImm:
		d.Op = verbs.OpSendWithImm
	default:
		d.Op = verbs.OpSend
	}
}

// count makes s, which the device will complete by itself, one that held waits for.
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

// poison fills the local piece of an atomic with a value that will not be its
// result. Pieces that the device will refuse are left alone.
func (e *endpoint) poison(w *fabric.WR, s *slot) {
	p := &w.Local[0]
	e.l.mu.Lock()
	for r := range e.l.regions {
		if off := p.Addr - r.key.Addr; r.lkey == p.LKey && off < r.key.Len && r.key.Len-off >= 8 && rights(r.access)&verbs.AccessLocalWrite != 0 {
			e.cell = r.mem[off:][:8:8]
			break
		}
	}
	e.l.mu.Unlock()
	if e.cell != nil {
		s.flags |= slotPoison
		e.before = binary.NativeEndian.Uint64(e.cell)
		binary.NativeEndian.PutUint64(e.cell, e.poisonWord)
	}
}

// cure takes the poison away again: the atomic is not going to succeed.
func (e *endpoint) cure() {
	if e.cell != nil {
		binary.NativeEndian.PutUint64(e.cell, e.before)
		e.cell = nil
	}
}

// lost reports whether the result that s promises is not there.
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
