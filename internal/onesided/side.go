package onesided

import "github.com/seed33544411/rma/fabric"

// Piece is contiguous memory of one side: of this process with a local key, or
// of the target with a remote one.
type Piece struct {
	Addr, Len uint64
	Key       uint32
}

// side iterates over the contiguous runs of one side: of a list, or of a shape. It is
// always inside a run, or at the end.
type side struct {
	list []Piece // nil: a shape
	i    int     // index of the piece

	key    uint32
	base   uint64
	run    uint64
	n      int // dimensions, after joining those that are contiguous
	count  [MaxDims]uint64
	stride [MaxDims]uint64
	idx    [MaxDims]uint64

	addr uint64 // of the run
	off  uint64 // into it
}

// setList makes s iterate over list, which must contain no empty piece.
func (s *side) setList(list []Piece) {
	*s = side{list: list}
	if len(list) > 0 {
		s.enter(0)
	}
}

func (s *side) enter(i int) {
	p := &s.list[i]
	s.i, s.addr, s.run, s.key, s.off = i, p.Addr, p.Len, p.Key, 0
}

// setShape makes s iterate over one side of a shape that passed Check.
func (s *side) setShape(at Piece, shape Shape, remote bool) {
	*s = side{base: at.Addr, addr: at.Addr, key: at.Key, run: uint64(shape.Run)}
	for i := len(shape.Dims) - 1; i >= 0; i-- { // innermost first
		d := shape.Dims[i]
		stride := uint64(d.Local)
		if remote {
			stride = uint64(d.Remote)
		}
		if d.Count == 1 {
			continue
		}
		if s.n == 0 && stride == s.run {
			s.run *= uint64(d.Count)
			continue
		}
		if k := s.n - 1; k >= 0 && stride == s.stride[k]*s.count[k] {
			s.count[k] *= uint64(d.Count)
			continue
		}
		s.count[s.n], s.stride[s.n] = uint64(d.Count), stride
		s.n++
	}
}

// left returns the number of remaining bytes of the run.
func (s *side) left() uint64 { return s.run - s.off }

// advance advances by k bytes, at most the rest of the run.
func (s *side) advance(k uint64) {
	if s.off += k; s.off < s.run {
		return
	}
	if s.list != nil {
		if s.i+1 < len(s.list) {
			s.enter(s.i + 1)
		}
		return
	}
	for d := range s.n {
		if s.idx[d]++; s.idx[d] < s.count[d] {
			s.addr += s.stride[d]
			s.off = 0
			return
		}
		s.addr -= s.stride[d] * (s.count[d] - 1)
		s.idx[d] = 0
	}
}

// seek moves to byte pos of a shape.
func (s *side) seek(pos uint64) {
	q := pos / s.run
	s.addr, s.off = s.base, pos%s.run
	for d := range s.n {
		s.idx[d] = q % s.count[d]
		q /= s.count[d]
		s.addr += s.idx[d] * s.stride[d]
	}
}

// resume moves to byte pos: in a list, to off in piece i.
func (s *side) resume(pos uint64, i int, off uint64) {
	if s.list == nil {
		s.seek(pos)
		return
	}
	s.enter(i)
	s.off = off
}

// join appends p to list, or extends its last piece if p continues it. Empty pieces are
// omitted.
func join(list []Piece, p Piece) []Piece {
	if p.Len == 0 {
		return list
	}
	if n := len(list); n > 0 {
		if l := &list[n-1]; l.Key == p.Key && l.Addr+l.Len == p.Addr && l.Len+p.Len >= l.Len {
			l.Len += p.Len
			return list
		}
	}
	return append(list, p)
}

// maxSGE is the longest local piece.
const maxSGE = 1<<32 - 1

// sge returns the entry for the next n bytes of a local side.
func (s *side) sge(n uint64) fabric.SGE {
	return fabric.SGE{Addr: s.addr + s.off, Len: uint32(n), LKey: s.key}
}
