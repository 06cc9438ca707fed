package rma

import (
	"context"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/onesided"
)

// Atomics. All of them, of both sizes, are atomic with respect to each other on
// the same memory, by any number of ranks over one kind of link; with respect to the
// target's own atomics (sync/atomic) except on RDMA, where most adapters do not
// promise it.
//
// Links know two, FetchAdd and CompareSwap of 8 bytes. The others are loops of
// compare-and-swaps which the engine runs by itself: two round trips where the
// word is not what was last seen there, one where it is, more where others change it all the
// time; then it backs off, and gives up with ErrContention after hundreds of tries and
// Config.PeerTimeout. Those of one rank on one word take place in the order of the calls,
// accumulates included; other operations that were handed in later may take place
// before: see Fence.

// FetchAdd adds to the 8-byte word at dst, which must lie on a multiple of 8,
// and returns what it held before. It does not allocate or block.
// Hot path.
func (p *Peer) FetchAdd(dst Remote, add uint64) AtomicRequest {
	if p.soon {
		if r := p.nowWord(kindFetchAdd, dst, 0, add); r.eng != nil {
			return r
		}
	}
	o := newOp(p, kindFetchAdd)
	o.operand = add
	return AtomicRequest{Request: p.submitWord(o, dst)}
}

// CompareSwap sets the 8-byte word at dst, which must lie on a multiple of 8,
// to swap if it holds compare, and returns what it held before. It does
// not allocate or block.
// Hot path.
func (p *Peer) CompareSwap(dst Remote, compare, swap uint64) AtomicRequest {
	if p.soon {
		if r := p.nowWord(kindCompareSwap, dst, compare, swap); r.eng != nil {
			return r
		}
	}
	o := newOp(p, kindCompareSwap)
	o.compare, o.operand = compare, swap
	return AtomicRequest{Request: p.submitWord(o, dst)}
}

// Swap sets the 8-byte word at dst, which must lie on a multiple of 8, and returns
// what it held before.
func (p *Peer) Swap(dst Remote, v uint64) AtomicRequest { return p.loop(dst, onesided.Set, v) }

// FetchAnd makes the 8-byte word at dst, which must lie on a multiple of 8, word &
// mask, and returns what it held before.
func (p *Peer) FetchAnd(dst Remote, mask uint64) AtomicRequest {
	return p.loop(dst, onesided.And, mask)
}

// FetchOr is FetchAnd with word | mask.
func (p *Peer) FetchOr(dst Remote, mask uint64) AtomicRequest { return p.loop(dst, onesided.Or, mask) }

// FetchXor is FetchAnd with word ^ mask.
func (p *Peer) FetchXor(dst Remote, mask uint64) AtomicRequest {
	return p.loop(dst, onesided.Xor, mask)
}

func (p *Peer) loop(dst Remote, f onesided.Func, arg uint64) AtomicRequest {
	o := newOp(p, kindEmulated)
	o.extend().rmw = onesided.RMW{Func: f, Arg: arg}
	return AtomicRequest{Request: p.submitWord(o, dst)}
}

// submitWord hands in an operation on an aligned word of 8 bytes.
func (p *Peer) submitWord(o *op, at Remote) Request {
	var err error
	o.remote, o.rkey, err = p.reach(at, 8, fabric.AccessRemoteAtomic)
	if err == nil && o.remote%8 != 0 {
		err = ErrAlign
	}
	if err != nil {
		return p.drop(o, err)
	}
	return p.handIn(o)
}

// FetchAdd32 adds to the 4-byte word at dst, which must lie on a multiple of 4,
// and returns what it held before. The aligned 8 bytes around it must lie in the
// same region. Of atomics of 4 bytes only those where this half is the upper one
// go to the link as they are.
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

// half hands in an atomic on one half of an aligned word.
func (p *Peer) half(dst Remote, m onesided.RMW) AtomicRequest32 {
	o := newOp(p, kindEmulated)
	addr, rkey, err := p.reach(dst, 4, fabric.AccessRemoteAtomic)
	word := addr &^ 7
	switch {
	case err != nil:
	case addr%4 != 0:
		err = ErrAlign
	case word < dst.key.k.Addr || dst.key.k.Addr+dst.key.k.Len-word < 8:
		err = ErrBounds // of the word
	}
	if err != nil {
		return AtomicRequest32{Request: p.drop(o, err)}
	}
	o.remote, o.rkey = word, rkey
	m.Half, m.Shift = true, onesided.Shift(addr)
	if m.Func == onesided.Add && m.Shift == 32 { // nothing is carried into the other half
		o.kind = kindFetchAdd
		o.operand = m.Arg << 32
	} else {
		o.extend().rmw = m
	}
	return AtomicRequest32{Request: p.handIn(o), shift: m.Shift}
}

// AtomicRequest32 is an atomic operation on 4 bytes under way.
type AtomicRequest32 struct {
	Request
	shift uint8
}

// Wait returns what the target's word held before the operation. Errors as
// Request.Wait.
func (a AtomicRequest32) Wait(ctx context.Context) (uint32, error) {
	v, err := a.wait(ctx, nil)
	return uint32(v >> a.shift), err
}
