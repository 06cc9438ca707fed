package rma

import (
	"context"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/initiator"
	"github.com/seed33544411/rma/internal/onesided"
)

// Reduction is how Accumulate and Fetch combine two elements.
type Reduction uint8

// Reductions. Integers wrap around. If either operand is NaN, the minimum and the maximum
// are NaN.
const (
	Sum     = Reduction(onesided.Sum)
	Min     = Reduction(onesided.Min)
	Max     = Reduction(onesided.Max)
	Prod    = Reduction(onesided.Prod)
	Replace = Reduction(onesided.Replace) // the new element, whatever was there
	BitAnd  = Reduction(onesided.BitAnd)  // of integers, as the next two: ErrInvalid for others
	BitOr   = Reduction(onesided.BitOr)
	BitXor  = Reduction(onesided.BitXor)
)

// String is the name of the reduction.
func (r Reduction) String() string { return onesided.Reduction(r).String() }

// Element is the set of types that Accumulate combines.
type Element interface {
	~int32 | ~int64 | ~uint32 | ~uint64 | ~float32 | ~float64
}

// Accumulate combines the elements of src with those at dst in the peer's memory, which
// must be aligned to their size: dst[i] = op(dst[i], src[i]). The target's engine does the
// work, or this side where the link maps the target's memory; the target's application makes
// no call, and the data travels once. src may be memory of any kind and belongs to the engine
// until the request is complete, that is, until all elements have been combined.
//
// Each element is combined atomically with respect to other Accumulates at the same target,
// to the target's own sync/atomic, and, except over RDMA, to atomics of peers. The order of
// combinations between ranks is not defined. Accumulates of one rank take place after the
// puts posted for the peer before, in the order of the calls, and in order with its atomics
// on the same words; other operations posted later may overtake them: see Fence. The first
// Accumulate that a peer's engine does sets up 64 KiB of memory on either side. It does not allocate or
// block.
// Hot path.
func Accumulate[T Element](p *Peer, dst Remote, op Reduction, src []T) Request {
	return p.accumulate(dst, op, typeOf[T](), Bytes(src))
}

// Fetch combines v with the element at dst in the peer's memory, which must be aligned to its
// size, as Accumulate does, and returns what the element was: a fetching minimum, an addition
// of floating point, an exchange (Replace). An element of 4 bytes must have the aligned 8
// bytes around it in the same region. It is an atomic like those of Peer: atomic with
// respect to them and to accumulates, and in order with those of this rank on the same
// word. Forget makes it one that returns nothing. It does not allocate or block.
//
//	lowest, err := rma.Fetch(p, at, rma.Min, cost).Wait(ctx) // before ours
//
// Hot path.
func Fetch[T Element](p *Peer, dst Remote, op Reduction, v T) FetchRequest[T] {
	t := typeOf[T]()
	m := onesided.RMW{Func: onesided.Combine, Op: onesided.Reduction(op), Type: t, Arg: bitsOf(v)}
	switch {
	case !m.Op.Takes(t):
		return FetchRequest[T]{Request: p.refuse(initiator.Emulated.String(), ErrInvalid)}
	case t.Size() == 4:
		r := p.half(dst, m)
		return FetchRequest[T]{r.Request, r.held, r.shift}
	case op == Sum && t != onesided.Float64: // an atomic of links
		r := p.FetchAdd(dst, m.Arg)
		return FetchRequest[T]{Request: r.Request, held: r.held}
	}
	r := p.emulate(dst, m)
	return FetchRequest[T]{Request: r.Request, held: r.held}
}

// FetchRequest is a Fetch in flight. Its Request is for WaitAny and similar functions.
type FetchRequest[T Element] struct {
	Request
	held  uint64 // by the word, if the operation was complete at once
	shift uint8
}

// Wait returns what the element was before the operation. Errors as Request.Wait.
func (f FetchRequest[T]) Wait(ctx context.Context) (T, error) {
	v, err := f.wait(ctx, nil)
	return ofBits[T]((v + f.held) >> f.shift), err // one of them is 0
}

// typeOf returns the type of T on the wire.
func typeOf[T Element]() onesided.Type {
	var zero T
	long := sizeOf[T]() == 8
	switch signed := zero-1 < 0; {
	case (zero+1)/2 != 0 && long:
		return onesided.Float64
	case (zero+1)/2 != 0:
		return onesided.Float32
	case signed && long:
		return onesided.Int64
	case signed:
		return onesided.Int32
	case long:
		return onesided.Uint64
	}
	return onesided.Uint32
}

func (p *Peer) accumulate(dst Remote, op Reduction, t onesided.Type, src []byte) Request {
	addr, rkey, err := p.reach(dst, uint64(len(src)), fabric.AccessRemoteWrite|fabric.AccessRemoteAtomic)
	switch {
	case err != nil:
	case !onesided.Reduction(op).Takes(t):
		err = ErrInvalid
	case addr%uint64(t.Size()) != 0:
		err = ErrAlign
	}
	if err != nil {
		return p.refuse(initiator.Accumulate.String(), err)
	}
	if len(src) == 0 {
		return p.post(initiator.New(&p.one, initiator.Put)) // of nothing, in its turn
	}
	o := initiator.New(&p.one, initiator.Accumulate)
	o.Remote(addr, rkey)
	o.Combine(src, onesided.Request{Op: onesided.Reduction(op), Type: t, Ref: dst.key.value().Ref, Addr: addr})
	return p.post(o)
}
