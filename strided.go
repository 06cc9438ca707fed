package rma

import (
	"github.com/seed33544411/rma/internal/initiator"
	"github.com/seed33544411/rma/internal/onesided"
)

// Shape is a block of an array of up to MaxDims dimensions: Run contiguous bytes, repeated
// along Dims, of which the first varies slowest. The arrays on the two sides of a transfer
// may have different strides.
//
// A column of a matrix of float64 with 1000 columns, sent to a matrix with 500:
//
//	rma.Shape{Run: 8, Dims: []rma.Dim{{Count: rows, Local: 8 * 1000, Remote: 8 * 500}}}
type Shape struct {
	Run  int
	Dims []Dim
}

// Dim is one dimension of a Shape: Count runs (or planes, or volumes) that begin Local
// bytes apart on this side and Remote bytes apart on the other. Strides must not be
// negative; a stride of 0 repeats a source.
type Dim struct {
	Count, Local, Remote int
}

// MaxDims bounds the dimensions of a Shape.
const MaxDims = onesided.MaxDims

// Shape2D returns the shape of rows runs of rowBytes bytes that begin local bytes apart
// here and remote bytes apart at the peer.
func Shape2D(rows, rowBytes, local, remote int) Shape {
	return Shape{Run: rowBytes, Dims: []Dim{{Count: rows, Local: local, Remote: remote}}}
}

// PutStrided copies runs of src to runs at dst as described by shape; both begin with the
// first run. The local extent of the shape must lie inside src (ErrBounds), the remote
// extent inside the key's memory. Runs must not overlap at the destination (ErrOverlap):
// the stride of each dimension must exceed the extent of the dimensions with smaller
// strides. The shape is not expanded: a shape of millions of runs costs no memory.
// PutStrided checks all arguments before any byte is transferred; the order in which runs
// become visible is not defined. It does not allocate or block.
// Hot path.
func (p *Peer) PutStrided(dst Remote, src Buffer, shape Shape) Request {
	return p.strided(initiator.Put, src, dst, shape)
}

// GetStrided copies runs at src to runs of dst, as PutStrided.
func (p *Peer) GetStrided(dst Buffer, src Remote, shape Shape) Request {
	return p.strided(initiator.Get, dst, src, shape)
}

func (p *Peer) strided(k initiator.Kind, local Buffer, remote Remote, shape Shape) Request {
	o := initiator.New(&p.one, k)
	here, err := local.piece(p.eng, p.link)
	if err != nil {
		return p.drop(o, err)
	}
	var dims [MaxDims]onesided.Dim
	s := onesided.Shape{Run: shape.Run, Dims: dims[:min(len(shape.Dims), MaxDims)]}
	for i := range s.Dims {
		dims[i] = onesided.Dim(shape.Dims[i])
	}
	plan, err := s.Check()
	switch {
	case err != nil:
	case len(shape.Dims) > MaxDims:
		err = ErrShape
	case plan.Local > here.Len:
		err = ErrBounds
	case s.Overlaps(k == initiator.Put):
		err = ErrOverlap
	}
	if err != nil {
		return p.drop(o, err)
	}
	there := onesided.Piece{Len: plan.Remote}
	if there.Addr, there.Key, err = p.reach(remote, plan.Remote, right(k)); err != nil {
		return p.drop(o, err)
	}
	o.Cursor().SetShape(here, there, s, plan)
	return p.post(o)
}
