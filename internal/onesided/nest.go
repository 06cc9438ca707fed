package onesided

import "encoding/binary"

// nest is a shape as loops: runs of run bytes along dims, the last of which is the
// innermost. Memory that is contiguous on both sides is one run.
type nest struct {
	run  int
	n    int
	dims [MaxDims]Dim
	at   place // where a copy goes on
}

// set sets the nest of a shape that passed Check.
func (x *nest) set(s Shape) {
	x.run, x.n, x.at = s.Run, 0, place{}
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

// place is where a copy goes on: the plane, by its position in the outer dimensions, and the row and
// the run of it.
type place struct {
	plane    [MaxDims]int
	row, run int
}

// copy copies runs from src to dst, which begin with the first run of their side and
// contain all of them, from where the last call for the same memory has ended, until about turn
// bytes, or a run, have been copied. It reports whether all have been; the next call begins
// again. put: dst is the remote side. Does not allocate.
func (x *nest) copy(dst, src []byte, put bool, turn int) (all bool) {
	var d [MaxDims]level
	for i := range x.n {
		if d[i] = (level{x.dims[i].Count, x.dims[i].Local, x.dims[i].Remote}); put {
			d[i].dst, d[i].src = d[i].src, d[i].dst
		}
	}
	outer, f := d[:max(x.n-2, 0)], newPlane(d[max(x.n-2, 0):x.n], x.run, turn)
	at := &x.at.plane
	to, from := 0, 0
	for i := range outer {
		to, from = to+at[i]*outer[i].dst, from+at[i]*outer[i].src
	}
	for {
		if turn = f.copy(dst[to:], src[from:], &x.at, turn); turn < 0 {
			return false
		}
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
			return true
		}
	}
}

// level is a dimension as it is copied.
type level struct{ count, dst, src int }

// tile is the number of runs of a plane that are copied along one dimension before the
// other advances, if the sides are transposed: as many cache lines as any first-level cache
// holds.
const tile = 16

// plane is the innermost two dimensions, of which a shape may lack some, and how they are copied:
// high rows by wide runs at a time. If neighbours on one side are far apart on the other, as in
// a transpose, these are tiles, so that each cache line is used completely while it is cached.
type plane struct {
	rows, runs level
	run        int // bytes
	high, wide int
}

// newPlane returns the plane of at most two dimensions that is copied in turns of about turn bytes.
func newPlane(d []level, run, turn int) plane {
	f := plane{rows: level{count: 1}, runs: level{count: 1}, run: run}
	switch len(d) {
	case 1:
		f.runs = d[0]
	case 2:
		f.rows, f.runs = d[0], d[1]
	}
	f.high, f.wide = f.rows.count, f.runs.count
	if len(d) == 2 && (f.rows.dst < f.runs.dst) != (f.rows.src < f.runs.src) {
		f.high, f.wide = tile, tile
	}
	f.wide = max(1, min(f.wide, turn/run))
	f.high = max(1, min(f.high, turn/(f.wide*run)))
	return f
}

// copy copies the plane from at on until it has copied turn bytes or more. It returns turn less what it
// has copied, or a negative number if the plane is not complete.
func (f *plane) copy(dst, src []byte, at *place, turn int) (left int) {
	for ; at.row < f.rows.count; at.row += f.high {
		for ; at.run < f.runs.count; at.run += f.wide {
			if turn <= 0 {
				return -1
			}
			part := level{min(f.wide, f.runs.count-at.run), f.runs.dst, f.runs.src}
			end := min(at.row+f.high, f.rows.count)
			for k := at.row; k < end; k++ {
				row(dst[k*f.rows.dst+at.run*f.runs.dst:], src[k*f.rows.src+at.run*f.runs.src:], part, f.run)
			}
			turn -= (end - at.row) * part.count * f.run
		}
		at.run = 0
	}
	at.row = 0
	return max(turn, 0)
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
