package rma

import (
	"context"
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/initiator"
	"github.com/seed33544411/rma/internal/onesided"
)

// Atomics. All of them, of both sizes, are atomic with respect to each other on the same
// memory, from any number of ranks over one kind of link. They are atomic with respect to
// the target's own atomics (sync/atomic) except on RDMA, where most adapters do not promise
// it. A connection over tcp that has replaced one over such an adapter (Peer.Reset) therefore refuses them,
// with an error that wraps fabric.ErrNotSupported.
//
// Links implement two atomics, FetchAdd and CompareSwap of 8 bytes. Where the link maps the
// target's memory the others are atomics of this processor; elsewhere the engine emulates
// them by compare-and-swap loops: one round trip if the word still has the value last seen,
// two if it does not, more under contention. A loop under contention backs off, and fails
// with ErrContention after hundreds of attempts and Config.PeerTimeout. Atomics of one rank
// on one word, accumulates included, take place in the order of the calls; other operations
// posted later may take place before: see Fence.

// FetchAdd adds add to the 8-byte word at dst, which must be aligned to 8 bytes
// (ErrAlign). Wait of the request returns the word's previous value. FetchAdd does not
// allocate or block.
// Hot path.
func (p *Peer) FetchAdd(dst Remote, add uint64) AtomicRequest {
	return p.atomic(initiator.FetchAdd, dst, 0, add)
}

// CompareSwap sets the 8-byte word at dst, which must be aligned to 8 bytes (ErrAlign), to
// swap if its value is compare. Wait of the request returns the word's previous value: the
// swap took place if it equals compare. CompareSwap does not allocate or block.
// Hot path.
func (p *Peer) CompareSwap(dst Remote, compare, swap uint64) AtomicRequest {
	return p.atomic(initiator.CompareSwap, dst, compare, swap)
}

// Swap sets the 8-byte word at dst, which must be aligned to 8 bytes (ErrAlign), to v.
// Wait of the request returns the word's previous value.
func (p *Peer) Swap(dst Remote, v uint64) AtomicRequest {
	return p.emulate(dst, onesided.RMW{Func: onesided.Set, Arg: v})
}

// FetchAnd sets the 8-byte word at dst, which must be aligned to 8 bytes (ErrAlign), to
// word & mask. Wait of the request returns the word's previous value.
func (p *Peer) FetchAnd(dst Remote, mask uint64) AtomicRequest {
	return p.emulate(dst, onesided.RMW{Func: onesided.And, Arg: mask})
}

// FetchOr sets the word to word | mask, otherwise as FetchAnd.
func (p *Peer) FetchOr(dst Remote, mask uint64) AtomicRequest {
	return p.emulate(dst, onesided.RMW{Func: onesided.Or, Arg: mask})
}

// FetchXor sets the word to word ^ mask, otherwise as FetchAnd.
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
			return AtomicRequest{Request: newReceipt(p.eng, n), held: held}
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
			return AtomicRequest{Request: newReceipt(p.eng, n), held: held}
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
	switch {
	case err != nil:
	case addr%8 != 0:
		err = ErrAlign
	case apart(p):
		err = errApart
	}
	return addr, rkey, err
}

// errApart refuses an atomic.
var errApart = fmt.Errorf("%w: the connection uses tcp since verbs was lost, and atomics over tcp do not exclude those of other ranks over the peer's adapter", fabric.ErrNotSupported)

// apart reports whether atomics of the connection and those of other ranks might not exclude each other.
func apart(p *Peer) bool {
	c := p.over.Load()
	return c != nil && !c.atomics
}

// FetchAdd32 adds add to the 4-byte word at dst, which must be aligned to 4 bytes
// (ErrAlign). Wait of the request returns the word's previous value. The aligned 8 bytes
// that contain the word must lie in the same region (ErrBounds). In the upper half of
// these 8 bytes FetchAdd32 is an atomic of the link; in the lower half it is emulated.
func (p *Peer) FetchAdd32(dst Remote, add uint32) AtomicRequest32 {
	return p.half(dst, onesided.RMW{Func: onesided.Add, Arg: uint64(add)})
}

// CompareSwap32 is CompareSwap of 4 bytes, aligned as for FetchAdd32.
func (p *Peer) CompareSwap32(dst Remote, compare, swap uint32) AtomicRequest32 {
	return p.half(dst, onesided.RMW{Func: onesided.SetIf, Compare: uint64(compare), Arg: uint64(swap)})
}

// Swap32 is Swap of 4 bytes, aligned as for FetchAdd32.
func (p *Peer) Swap32(dst Remote, v uint32) AtomicRequest32 {
	return p.half(dst, onesided.RMW{Func: onesided.Set, Arg: uint64(v)})
}

// FetchAnd32 is FetchAnd of 4 bytes, aligned as for FetchAdd32.
func (p *Peer) FetchAnd32(dst Remote, mask uint32) AtomicRequest32 {
	return p.half(dst, onesided.RMW{Func: onesided.And, Arg: uint64(mask)})
}

// FetchOr32 is FetchOr of 4 bytes, aligned as for FetchAdd32.
func (p *Peer) FetchOr32(dst Remote, mask uint32) AtomicRequest32 {
	return p.half(dst, onesided.RMW{Func: onesided.Or, Arg: uint64(mask)})
}

// FetchXor32 is FetchXor of 4 bytes, aligned as for FetchAdd32.
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
	case apart(p):
		err = errApart
	case word < mem.Addr || mem.Addr+mem.Len-word < 8:
		err = fmt.Errorf("%w: the aligned 8 bytes around offset %d of %d", ErrBounds, dst.off, mem.Len)
	}
	if err != nil {
		return AtomicRequest32{Request: p.refuse(initiator.Emulated.String(), err)}
	}
	m.Half, m.Shift = true, onesided.Shift(addr)
	if p.tries() {
		if n, held := p.one.TryRMW(word, rkey, &m); n != 0 {
			return AtomicRequest32{newReceipt(p.eng, n), held >> m.Shift}
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
	return AtomicRequest32{p.post(o), uint64(m.Shift)}
}

// AtomicRequest32 is an atomic operation on 4 bytes in flight.
type AtomicRequest32 struct {
	Request
	rest uint64 // see fetched
}

// Wait returns the previous value of the target's word. Errors are those of Request.Wait.
func (a AtomicRequest32) Wait(ctx context.Context) (uint32, error) {
	v, err := a.fetched(ctx, a.rest)
	return uint32(v), err
}

// fetched waits for an atomic operation. rest is what was fetched, if the operation was complete
// at once, else the position of that in the aligned 8 bytes of which it is a part, in bits. It
// is one word, so that no request has more than four: see TestRequestFitsRegisters.
func (r Request) fetched(ctx context.Context, rest uint64) (uint64, error) {
	v, err := r.wait(ctx, nil)
	if r.op == nil {
		return rest, err
	}
	return v >> rest, err
}

// Reduction is the operation by which Accumulate and Fetch combine two elements.
type Reduction uint8

// Reductions. Integers wrap around. If either operand is NaN, the minimum and the maximum
// are NaN.
const (
	Sum     = Reduction(onesided.Sum)
	Min     = Reduction(onesided.Min)
	Max     = Reduction(onesided.Max)
	Prod    = Reduction(onesided.Prod)
	Replace = Reduction(onesided.Replace) // the new element replaces the old one
	BitAnd  = Reduction(onesided.BitAnd)  // bitwise and; integers only, like BitOr and BitXor (ErrInvalid)
	BitOr   = Reduction(onesided.BitOr)
	BitXor  = Reduction(onesided.BitXor)
	NoOp    = Reduction(onesided.NoOp) // the element stays; for operations that fetch: an atomic load
)

// Exclusive is or'ed to the reduction of an Accumulate, AccumulateV or AccumulateStrided, and
// asserts that nothing but accumulates of this rank accesses the elements from the call to
// the completion of the request. They are then combined with plain loads and stores, not
// with an atomic instruction each, and at most as slowly as by a get, an addition and a put.
// If the assertion is wrong, changes of the elements may be lost.
//
//	rma.Accumulate(p, at, rma.Sum|rma.Exclusive, gradient) // between two barriers, one writer
const Exclusive = Reduction(onesided.Exclusive)

// String returns the name of the reduction.
func (r Reduction) String() string { return onesided.Reduction(r).String() }

// Element is the set of types that Accumulate and Fetch combine.
type Element interface {
	~int32 | ~int64 | ~uint32 | ~uint64 | ~float32 | ~float64
}

// Accumulate combines the elements of src with those at dst in the peer's memory: dst[i] =
// op(dst[i], src[i]). dst must be aligned to the size of an element (ErrAlign). If the
// link maps the target's memory, this side does the work, otherwise the target's engine;
// the target's application makes no call, and the data travels once. src may be memory of
// any kind. It belongs to the engine until the request is complete, which is when all
// elements have been combined.
//
// The combination of each element is atomic with respect to other accumulates at the same
// target, to sync/atomic operations of the target itself and, except over RDMA, to atomics
// of peers. The order of accumulates of different ranks is not defined. An accumulate
// takes place after the puts and accumulates that this rank has posted for the peer
// before, and in order with this rank's atomics on the same words. Other operations posted
// later may overtake it: see Fence.
//
// The first Accumulate that a peer's engine executes allocates 128 KiB on either side.
// Accumulate does not allocate Go memory or block.
// Hot path.
func Accumulate[T Element](p *Peer, dst Remote, op Reduction, src []T) Request {
	return p.accumulate(dst, op, typeOf[T](), Bytes(src))
}

// Fetch combines v with the element at dst in the peer's memory, as Accumulate does, and
// returns the element's previous value: a fetching minimum, a floating-point addition, an
// exchange (Replace), a load (NoOp). dst must be aligned to the element's size (ErrAlign);
// for an element of 4 bytes the aligned 8 bytes that contain it must lie in the same
// region (ErrBounds). Fetch is atomic with respect to the atomics of Peer and to
// accumulates, and in order with those of this rank on the same word. Call Forget on the
// request if the value is not needed. Fetch does not allocate or block.
//
//	lowest, err := rma.Fetch(p, at, rma.Min, cost).Wait(ctx) // before ours
//
// Hot path.
func Fetch[T Element](p *Peer, dst Remote, op Reduction, v T) FetchRequest[T] {
	t := typeOf[T]()
	m := onesided.RMW{Func: onesided.Combine, Op: onesided.Reduction(op), Type: t, Arg: bitsOf(v)}
	switch {
	case !(onesided.Combining{Op: m.Op, Type: t, Fetch: true}).Known():
		return FetchRequest[T]{Request: p.refuse(initiator.Emulated.String(), undefined(m.Op, t))}
	case t.Size() == 4:
		r := p.half(dst, m)
		return FetchRequest[T](r)
	case op == Sum && t != onesided.Float64: // an atomic of links
		r := p.FetchAdd(dst, m.Arg)
		return FetchRequest[T]{r.Request, r.held}
	}
	r := p.emulate(dst, m)
	return FetchRequest[T]{r.Request, r.held}
}

// FetchRequest is a Fetch, or a wait of AwaitUntil, in flight. Its Request can be passed
// to WaitAny and similar functions.
type FetchRequest[T Element] struct {
	Request
	rest uint64 // see fetched
}

// Wait returns the element's previous value or, for AwaitUntil, the value that met the
// condition. Errors are those of Request.Wait.
func (f FetchRequest[T]) Wait(ctx context.Context) (T, error) {
	v, err := f.fetched(ctx, f.rest)
	return ofBits[T](v), err
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
		err = undefined(onesided.Reduction(op), t)
	case addr%uint64(t.Size()) != 0:
		err = ErrAlign
	}
	if err != nil {
		return p.refuse(initiator.Accumulate.String(), err)
	}
	if len(src) == 0 {
		return p.post(initiator.New(&p.one, initiator.Put)) // of no bytes: completes in order
	}
	o := initiator.New(&p.one, initiator.Accumulate)
	o.Remote(addr, rkey)
	o.Combine(src, onesided.Request{Op: onesided.Reduction(op), Type: t, Ref: dst.key.value().Ref, Addr: addr})
	return p.post(o)
}
