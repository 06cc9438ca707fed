package rma

import (
	"github.com/seed33544411/rma/internal/initiator"
	"github.com/seed33544411/rma/internal/onesided"
)

// Span is n bytes of a peer's memory.
type Span struct {
	at Remote
	n  int
}

// Span names n bytes from the place on. What lies outside the key's memory is
// refused by the operation that it is given to.
func (r Remote) Span(n int) Span { return Span{at: r, n: n} }

// Slice names n bytes from off on.
func (k Key) Slice(off uint64, n int) Span { return k.At(off).Span(n) }

// PutV copies the pieces of src, one after the other, to the pieces of dst, as if
// both were joined: they need not be cut alike, but must hold the same number of bytes.
// Pieces of dst must not overlap (ErrOverlap). All is checked before anything
// moves; the order in which pieces become visible is not defined. The lists may be reused
// when PutV returns. It does not allocate or block for lists seen before
// that were as long.
// Hot path.
func (p *Peer) PutV(dst []Span, src []Buffer) Request { return p.vector(initiator.Put, src, dst) }

// GetV copies the pieces of src to those of dst. As PutV.
func (p *Peer) GetV(dst []Buffer, src []Span) Request { return p.vector(initiator.Get, dst, src) }

func (p *Peer) vector(k initiator.Kind, local []Buffer, remote []Span) Request {
	o := initiator.New(&p.one, k)
	c := o.Cursor()
	for _, b := range local {
		s, err := b.piece(p.eng, p.link)
		if err != nil {
			return p.drop(o, err)
		}
		c.AddLocal(s)
	}
	for _, s := range remote {
		if s.n < 0 {
			return p.drop(o, ErrBounds)
		}
		addr, rkey, err := p.reach(s.at, uint64(s.n), right(k))
		if err != nil {
			return p.drop(o, err)
		}
		c.AddRemote(onesided.Piece{Addr: addr, Len: uint64(s.n), Key: rkey})
	}
	switch {
	case !c.End():
		return p.drop(o, ErrLength)
	case c.Overlap(k == initiator.Put):
		return p.drop(o, ErrOverlap)
	}
	return p.post(o)
}
