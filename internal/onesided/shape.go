package onesided

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// MaxDims bounds the dimensions of a Shape. Eight are more than programs decompose grids
// into in practice, and keep a cursor's state in two cache lines.
const MaxDims = 8

// Errors of shapes and lists.
var (
	ErrShape   = errors.New("invalid shape")
	ErrOverlap = errors.New("pieces of the destination overlap")
)

// Dim is one dimension of a Shape: Count runs, or planes of runs, Local bytes
// apart on this side and Remote bytes apart on the other.
type Dim struct {
	Count, Local, Remote int
}

// Shape is a block of Run contiguous bytes, repeated along dimensions; Dims[0]
// varies slowest. Without dimensions it is one run.
type Shape struct {
	Run  int
	Dims []Dim
}

// Plan is a checked shape.
type Plan struct {
	Total         uint64 // bytes moved
	Local, Remote uint64 // bytes from the first run to the end of the last, on either side
}

// Check computes the shape's extents. Errors wrap ErrShape: more than MaxDims
// dimensions, a negative number, or sizes beyond an int.
func (s Shape) Check() (p Plan, err error) {
	bad := func(format string, args ...any) (Plan, error) {
		return Plan{}, fmt.Errorf("%w: "+format, append([]any{ErrShape}, args...)...)
	}
	if len(s.Dims) > MaxDims {
		return bad("%d dimensions, at most %d", len(s.Dims), MaxDims)
	}
	if s.Run < 0 {
		return bad("runs of %d bytes", s.Run)
	}
	p = Plan{Total: uint64(s.Run), Local: uint64(s.Run), Remote: uint64(s.Run)}
	for i := range s.Dims {
		d := &s.Dims[i]
		if d.Count < 0 || d.Local < 0 || d.Remote < 0 {
			return bad("dimension %d: count %d, strides %d and %d", i, d.Count, d.Local, d.Remote)
		}
		if d.Count == 0 || s.Run == 0 {
			p.Total = 0
			continue
		}
		var over [3]uint64
		over[0], p.Total = bits.Mul64(p.Total, uint64(d.Count))
		over[1], p.Local = reach(p.Local, d.Count, d.Local)
		over[2], p.Remote = reach(p.Remote, d.Count, d.Remote)
		if over != [3]uint64{} || max(p.Total, p.Local, p.Remote) > math.MaxInt {
			return bad("too large")
		}
	}
	if p.Total == 0 {
		return Plan{}, nil
	}
	return p, nil
}

func reach(extent uint64, count, stride int) (over, n uint64) {
	hi, lo := bits.Mul64(uint64(count-1), uint64(stride))
	n, carry := bits.Add64(extent, lo, 0)
	return hi | carry, n
}

// Overlaps reports whether runs may overlap on the local side, or the remote one: true
// unless each dimension steps over the whole extent of smaller strides. Interleaved shapes
// that are disjoint only on closer examination count as overlapping. The shape must have
// passed Check.
func (s Shape) Overlaps(remote bool) bool {
	var ds [MaxDims]Dim
	n := 0
	for _, d := range s.Dims {
		if d.Count == 0 {
			return false
		}
		if d.Count == 1 {
			continue
		}
		if remote {
			d.Local = d.Remote
		}
		ds[n] = d
		n++
	}
	slices.SortFunc(ds[:n], func(a, b Dim) int { return cmp.Compare(a.Local, b.Local) })
	extent := s.Run
	for _, d := range ds[:n] {
		if d.Local < extent {
			return true
		}
		extent += (d.Count - 1) * d.Local
	}
	return false
}

// few is the number of pieces up to which all pairs are compared: that is faster than
// sorting a copy, and does not allocate.
const few = 24

// overlap reports whether any two of ps share a byte. Pieces do not wrap around the address
// space. Only pieces of the same key are compared: two keys may belong to two ranks'
// memory, or to the same memory, which is unknown here.
func overlap(ps []Piece) bool {
	if len(ps) <= few {
		for i := range ps {
			for j := range i {
				a, b := &ps[i], &ps[j]
				if a.Key == b.Key && a.Addr < b.Addr+b.Len && b.Addr < a.Addr+a.Len {
					return true
				}
			}
		}
		return false
	}
	sorted := slices.Clone(ps)
	slices.SortFunc(sorted, func(a, b Piece) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Addr, b.Addr))
	})
	for i := range sorted[1:] {
		a, b := &sorted[i], &sorted[i+1]
		if a.Key == b.Key && b.Addr < a.Addr+a.Len {
			return true
		}
	}
	return false
}
