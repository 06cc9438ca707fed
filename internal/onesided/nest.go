package onesided

import "encoding/binary"

// nest is a shape as loops: runs of run bytes along dims, the last of which is the
// innermost. Memory that is contiguous on both sides is one run.
type nest struct {
	run  int
	n    int
	dims [MaxDims]Dim
}

// set sets the nest of a shape that passed Check.
func (x *nest) set(s Shape) {
	x.run, x.n = s.Run, 0
	at := MaxDims // dims[at:] are set
	for i := len(s.Dims) - 1; i >= 0; i-- {
		d := s.Dims[i]
		switch {
		case d.Count == 1:
		case x.n == 0 && d.Local == x.run && d.Remote == x.run:
			x.run *= d.Count
		case x.n > 0 && d.Local == x.dims[at].Local*x.dims[at].Count && d.Remote == x.dims[at].Remote*x.dims[at].Count:
			x.dims[at].Count *= d.Count
		default:
			at--
			x.dims[at] = d
			x.n++
		}
	}
	copy(x.dims[:x.n], x.dims[at:])
}

// copy copies all runs from src to dst, which begin with the first run of their side and
// contain all of them. put: dst is the remote side. Does not allocate.
func (x *nest) copy(dst, src []byte, put bool) {
	var d [MaxDims]level
	for i := range x.n {
		if d[i] = (level{x.dims[i].Count, x.dims[i].Local, x.dims[i].Remote}); put {
			d[i].dst, d[i].src = d[i].src, d[i].dst
		}
	}
	outer, inner := d[:max(x.n-2, 0)], d[max(x.n-2, 0):x.n]
	var at [MaxDims]int
	to, from := 0, 0
	for {
		x.plane(dst[to:], src[from:], inner)
		i := len(outer) - 1
		for ; i >= 0; i-- {
			o := &outer[i]
			if at[i]++; at[i] < o.count {
				to, from = to+o.dst, from+o.src
				break
			}
			to, from = to-o.dst*(o.count-1), from-o.src*(o.count-1)
			at[i] = 0
		}
		if i < 0 {
			return
		}
	}
}

// level is a dimension as it is copied.
type level struct{ count, dst, src int }

// tile is the number of runs of a plane that are copied along one dimension before the
// other advances, if the sides are transposed: as many cache lines as any first-level cache
// holds.
const tile = 16

// plane copies runs along at most two dimensions. If neighbours on one side are far apart
// on the other, as in a transpose, it copies in tiles, so that each cache line is used
// completely while it is cached.
func (x *nest) plane(dst, src []byte, d []level) {
	switch len(d) {
	case 0:
		copy(dst[:x.run], src[:x.run])
		return
	case 1:
		row(dst, src, d[0], x.run)
		return
	}
	a, b := d[0], d[1]
	ta, tb := a.count, b.count
	if (a.dst < b.dst) != (a.src < b.src) {
		ta, tb = tile, tile
	}
	for i := 0; i < a.count; i += ta {
		for j := 0; j < b.count; j += tb {
			part := level{min(tb, b.count-j), b.dst, b.src}
			for k := i; k < min(i+ta, a.count); k++ {
				row(dst[k*a.dst+j*b.dst:], src[k*a.src+j*b.src:], part, x.run)
			}
		}
	}
}

// row copies runs along one dimension.
func row(dst, src []byte, d level, run int) {
	switch run {
	case 8:
		for i, to, from := 0, 0, 0; i < d.count; i++ {
			binary.NativeEndian.PutUint64(dst[to:], binary.NativeEndian.Uint64(src[from:]))
			to, from = to+d.dst, from+d.src
		}
	case 4:
		for i, to, from := 0, 0, 0; i < d.count; i++ {
			binary.NativeEndian.PutUint32(dst[to:], binary.NativeEndian.Uint32(src[from:]))
			to, from = to+d.dst, from+d.src
		}
	default:
		for i, to, from := 0, 0, 0; i < d.count; i++ {
			copy(dst[to:to+run], src[from:from+run])
			to, from = to+d.dst, from+d.src
		}
	}
}
