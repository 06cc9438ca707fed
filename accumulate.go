package rma

import (
	"cmp"
	"math"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/initiator"
	"github.com/seed33544411/rma/internal/onesided"
)

// Accumulates of several pieces, or with a result. They are in one order with those of
// Accumulate, atomic by element like them, and fail alone like them; of one that the target
// refuses, other pieces may have been combined.

// GetAccumulate is Accumulate that returns the previous values: old[i] is set to the value
// that dst[i] had just before it was combined with src[i]. The slices have the same length
// (ErrLength), may be memory of any kind, and belong to the engine until the request is
// complete. They must not overlap, unless they are the same. With NoOp, src may be nil; old is
// then a copy whose elements were each read atomically, in order with accumulates. A Get
// promises neither.
//
//	rma.GetAccumulate(p, tickets, at, rma.Sum, counts).Wait(ctx) // reserves a range in each bin
//
// Hot path.
func GetAccumulate[T Element](p *Peer, old []T, dst Remote, op Reduction, src []T) Request {
	if op == NoOp && src == nil {
		src = old // the local side, which is not read
	}
	o := initiator.New(&p.one, initiator.Accumulate)
	if len(old) != len(src) {
		return p.drop(o, ErrLength)
	}
	how := onesided.Combining{Op: onesided.Reduction(op), Type: typeOf[T](), Fetch: true}
	return accumulatePieces(p, o, how, Bytes(old), Bytes(src), dst.Span(len(src)*sizeOf[T]()))
}

// AccumulateV is Accumulate to several ranges: the elements of src are combined with the
// concatenated elements of dst. The ranges together have as many bytes as src (ErrLength);
// the address and length of each are multiples of the element's size (ErrAlign). Where
// ranges overlap, an element is combined several times, in the order of the list.
func AccumulateV[T Element](p *Peer, dst []Span, op Reduction, src []T) Request {
	o := initiator.New(&p.one, initiator.Accumulate)
	how := onesided.Combining{Op: onesided.Reduction(op), Type: typeOf[T]()}
	return accumulatePieces(p, o, how, nil, Bytes(src), dst...)
}

// maxRepeated bounds the bytes of a shape that combines elements of the target several times: the
// memory of the two sides does not bound them.
const maxRepeated = 256 << 20

// AccumulateStrided is Accumulate of the elements of a Shape, whose sizes and strides are
// in bytes, as for Peer.PutStrided: runs of src are combined with runs at dst. The run,
// the strides of both sides and the address of dst must be multiples of the element's size
// (ErrAlign). Runs may overlap on either side; an element of the target is combined once
// for each run that contains it. Shapes whose runs overlap at the target combine at most
// 256 MiB of elements (ErrTooLarge).
func AccumulateStrided[T Element](p *Peer, dst Remote, op Reduction, src []T, shape Shape) Request {
	how := onesided.Combining{Op: onesided.Reduction(op), Type: typeOf[T]()}
	mem, size := Bytes(src), sizeOf[T]()
	o := initiator.New(&p.one, initiator.Accumulate)
	var dims [MaxDims]onesided.Dim
	s, plan, err := shape.plan(&dims)
	unaligned := s.Run
	for _, d := range s.Dims {
		unaligned |= d.Remote | d.Local
	}
	there := onesided.Piece{Len: plan.Remote}
	if err == nil {
		there.Addr, there.Key, err = p.reach(dst, plan.Remote, how.Needs())
	}
	switch {
	case err != nil:
	case !how.Known():
		err = undefined(how.Op, how.Type)
	case plan.Local > uint64(len(mem)):
		err = outside(0, plan.Local, uint64(len(mem)))
	case plan.Total > max(plan.Remote, maxRepeated):
		err = ErrTooLarge
	case (unaligned|int(there.Addr%8))%size != 0:
		err = ErrAlign
	}
	switch {
	case err != nil:
		return p.drop(o, err)
	case plan.Total == 0:
		o.Drop()
		return p.post(initiator.New(&p.one, initiator.Put)) // of no bytes: completes in order
	}
	o.Cursor().SetShape(onesided.Piece{Addr: fabric.Addr(mem), Len: uint64(len(mem))}, there, s, plan)
	o.CombinePieces(how, mem, nil, there.Addr, there.Len)
	return p.post(o)
}

// accumulatePieces posts o, an accumulate of src, which is contiguous, to the places of dst.
func accumulatePieces(p *Peer, o *initiator.Op, how onesided.Combining, old, src []byte, dst ...Span) Request {
	if !how.Known() {
		return p.drop(o, undefined(how.Op, how.Type))
	}
	c := o.Cursor()
	if len(src) > 0 {
		c.AddLocal(onesided.Piece{Addr: fabric.Addr(src), Len: uint64(len(src))})
	}
	lo, hi := uint64(math.MaxUint64), uint64(0)
	for _, s := range dst {
		addr, rkey, err := p.reach(s.at, uint64(max(s.n, 0)), how.Needs())
		if s.n < 0 {
			err = cmp.Or(err, outside(s.at.off, s.n, s.at.key.value().Len))
		} else if (addr|uint64(s.n))%uint64(how.Type.Size()) != 0 {
			err = cmp.Or(err, ErrAlign)
		}
		if err != nil {
			return p.drop(o, err)
		}
		if s.n > 0 {
			lo, hi = min(lo, addr), max(hi, addr+uint64(s.n))
		}
		c.AddRemote(onesided.Piece{Addr: addr, Len: uint64(s.n), Key: rkey})
	}
	switch {
	case !c.End():
		return p.drop(o, ErrLength)
	case len(src) == 0:
		o.Drop()
		return p.post(initiator.New(&p.one, initiator.Put))
	}
	o.CombinePieces(how, src, old, lo, hi-lo)
	return p.post(o)
}
