package rma

import (
	"github.com/seed33544411/rma/internal/initiator"
	"github.com/seed33544411/rma/internal/onesided"
)

// Span is a range of a peer's memory.
type Span struct {
	at Remote
	n  int
}

// Span returns the n bytes from the place on. An operation refuses a span that exceeds the
// key's memory.
func (r Remote) Span(n int) Span { return Span{at: r, n: n} }

// Slice returns the n bytes from off on.
func (k Key) Slice(off uint64, n int) Span { return k.At(off).Span(n) }

// PutV copies the concatenated pieces of src to the concatenated pieces of dst: the lists
// may be divided differently, but must hold the same number of bytes. Pieces of dst must
// not overlap (ErrOverlap). PutV checks all arguments before any byte is transferred; the
// order in which pieces become visible is not defined. The lists may be reused when PutV
// returns. It does not block, and allocates only for lists longer than those before.
// Hot path.
func (p *Peer) PutV(dst []Span, src []Buffer) Request { return p.vector(initiator.Put, src, dst) }

// GetV copies the pieces of src to those of dst, as PutV.
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
