package rma

import (
	"context"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/initiator"
	"github.com/seed33544411/rma/internal/onesided"
)

// Atomics. All of them, of both sizes, are atomic with respect to each other on the same
// memory, from any number of ranks over one kind of link. They are atomic with respect to
// the target's own atomics (sync/atomic) except on RDMA, where most adapters do not promise
// it.
//
// Links implement two atomics, FetchAdd and CompareSwap of 8 bytes. Where the link maps the
// target's memory the others are atomics of this processor; elsewhere the engine emulates them by compare-and-swap loops: one round trip if the word still has the value last
// seen, two if it has not, more under contention. A loop under contention backs off, and
// fails with ErrContention after hundreds of attempts and Config.PeerTimeout. Atomics of
// one rank on one word, accumulates included, take place in the order of the calls; other
// operations posted later may take place before: see Fence.

// FetchAdd adds to the 8-byte word at dst, which must be aligned to 8 bytes, and returns
// its previous value. It does not allocate or block.
// Hot path.
func (p *Peer) FetchAdd(dst Remote, add uint64) AtomicRequest {
	return p.atomic(initiator.FetchAdd, dst, 0, add)
}

// CompareSwap sets the 8-byte word at dst, which must be aligned to 8 bytes, to swap if its
// value is compare, and returns its previous value. It does not allocate or block.
// Hot path.
func (p *Peer) CompareSwap(dst Remote, compare, swap uint64) AtomicRequest {
	return p.atomic(initiator.CompareSwap, dst, compare, swap)
}

// Swap sets the 8-byte word at dst, which must be aligned to 8 bytes, and returns its
// previous value.
func (p *Peer) Swap(dst Remote, v uint64) AtomicRequest {
	return p.emulate(dst, onesided.RMW{Func: onesided.Set, Arg: v})
}

// FetchAnd sets the 8-byte word at dst, which must be aligned to 8 bytes, to word & mask,
// and returns its previous value.
func (p *Peer) FetchAnd(dst Remote, mask uint64) AtomicRequest {
	return p.emulate(dst, onesided.RMW{Func: onesided.And, Arg: mask})
}

// FetchOr is FetchAnd with word | mask.
func (p *Peer) FetchOr(dst Remote, mask uint64) AtomicRequest {
	return p.emulate(dst, onesided.RMW{Func: onesided.Or, Arg: mask})
}

// FetchXor is FetchAnd with word ^ mask.
func (p *Peer) FetchXor(dst Remote, mask uint64) AtomicRequest {
	return p.emulate(dst, onesided.RMW{Func: onesided.Xor, Arg: mask})
}

// atomic posts an atomic that links implement.
func (p *Peer) atomic(k initiator.Kind, dst Remote, compare, operand uint64) AtomicRequest {
	addr, rkey, err := p.reachWord(dst)
	if err != nil {
		return AtomicRequest{Request: p.refuse(k.String(), err)}
	}
	if p.tries() {
		if n, held := p.one.TryAtomic(k, addr, rkey, compare, operand); n != 0 {
			return AtomicRequest{Request: p.eng.receipt(n), held: held}
		}
	}
	o := initiator.New(&p.one, k)
	o.Remote(addr, rkey)
	o.Operands(compare, operand)
	return AtomicRequest{Request: p.post(o)}
}

// emulate posts an atomic that links do not implement.
func (p *Peer) emulate(dst Remote, m onesided.RMW) AtomicRequest {
	addr, rkey, err := p.reachWord(dst)
	if err != nil {
		return AtomicRequest{Request: p.refuse(initiator.Emulated.String(), err)}
	}
	if p.tries() {
		if n, held := p.one.TryRMW(addr, rkey, &m); n != 0 {
			return AtomicRequest{Request: p.eng.receipt(n), held: held}
		}
	}
	o := initiator.New(&p.one, initiator.Emulated)
	o.Remote(addr, rkey)
	o.Emulate(m)
	return AtomicRequest{Request: p.post(o)}
}

// reachWord is reach for an aligned word of 8 bytes.
func (p *Peer) reachWord(at Remote) (addr uint64, rkey uint32, err error) {
	addr, rkey, err = p.reach(at, 8, fabric.AccessRemoteAtomic)
	if err == nil && addr%8 != 0 {
		err = ErrAlign
	}
	return addr, rkey, err
}

// FetchAdd32 adds to the 4-byte word at dst, which must be aligned to 4 bytes, and returns
// its previous value. The aligned 8 bytes around it must lie in the same region. Links
// execute it directly only in the upper half of the 8 bytes; in the lower half it is
// emulated.
func (p *Peer) FetchAdd32(dst Remote, add uint32) AtomicRequest32 {
	return p.half(dst, onesided.RMW{Func: onesided.Add, Arg: uint64(add)})
}

// CompareSwap32 is CompareSwap of 4 bytes; alignment as FetchAdd32.
func (p *Peer) CompareSwap32(dst Remote, compare, swap uint32) AtomicRequest32 {
	return p.half(dst, onesided.RMW{Func: onesided.SetIf, Compare: uint64(compare), Arg: uint64(swap)})
}

// Swap32 is Swap of 4 bytes; alignment as FetchAdd32.
func (p *Peer) Swap32(dst Remote, v uint32) AtomicRequest32 {
	return p.half(dst, onesided.RMW{Func: onesided.Set, Arg: uint64(v)})
}

// FetchAnd32 is FetchAnd of 4 bytes; alignment as FetchAdd32.
func (p *Peer) FetchAnd32(dst Remote, mask uint32) AtomicRequest32 {
	return p.half(dst, onesided.RMW{Func: onesided.And, Arg: uint64(mask)})
}

// FetchOr32 is FetchOr of 4 bytes; alignment as FetchAdd32.
func (p *Peer) FetchOr32(dst Remote, mask uint32) AtomicRequest32 {
	return p.half(dst, onesided.RMW{Func: onesided.Or, Arg: uint64(mask)})
}

// FetchXor32 is FetchXor of 4 bytes; alignment as FetchAdd32.
func (p *Peer) FetchXor32(dst Remote, mask uint32) AtomicRequest32 {
	return p.half(dst, onesided.RMW{Func: onesided.Xor, Arg: uint64(mask)})
}

// half posts an atomic on one half of an aligned word.
func (p *Peer) half(dst Remote, m onesided.RMW) AtomicRequest32 {
	addr, rkey, err := p.reach(dst, 4, fabric.AccessRemoteAtomic)
	word, mem := addr&^7, dst.key.value()
	switch {
	case err != nil:
	case addr%4 != 0:
		err = ErrAlign
	case word < mem.Addr || mem.Addr+mem.Len-word < 8:
		err = ErrBounds // of the word
	}
	if err != nil {
		return AtomicRequest32{Request: p.refuse(initiator.Emulated.String(), err)}
	}
	m.Half, m.Shift = true, onesided.Shift(addr)
	if p.tries() {
		if n, held := p.one.TryRMW(word, rkey, &m); n != 0 {
			return AtomicRequest32{Request: p.eng.receipt(n), held: held, shift: m.Shift}
		}
	}
	var o *initiator.Op
	if m.Func == onesided.Add && m.Shift == 32 { // nothing is carried into the other half
		o = initiator.New(&p.one, initiator.FetchAdd)
		o.Operands(0, m.Arg<<32)
	} else {
		o = initiator.New(&p.one, initiator.Emulated)
		o.Emulate(m)
	}
	o.Remote(word, rkey)
	return AtomicRequest32{Request: p.post(o), shift: m.Shift}
}

// AtomicRequest32 is an atomic operation on 4 bytes in flight.
type AtomicRequest32 struct {
	Request
	held  uint64 // by the aligned word of 8 bytes, if the operation was complete at once
	shift uint8
}

// Wait returns the previous value of the target's word. Errors are those of Request.Wait.
func (a AtomicRequest32) Wait(ctx context.Context) (uint32, error) {
	v, err := a.wait(ctx, nil)
	return uint32((v + a.held) >> a.shift), err // one of them is 0
}
