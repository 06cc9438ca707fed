package shm

import (
	"encoding/binary"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/bulk"
)

// cursor is a position in a list of local pieces.
type cursor struct {
	i   int
	off uint32
}

// gather fills dst from the pieces and advances. The pieces must hold enough.
func (c *cursor) gather(dst []byte, sgl []fabric.SGE) {
	for n := 0; n < len(dst) && c.i < len(sgl); {
		s := &sgl[c.i]
		k := copy(dst[n:], fabric.BytesAt(s.Addr+uint64(c.off), int(s.Len-c.off)))
		n += k
		c.skip(uint32(k), s.Len)
	}
}

// scatter stores src to the pieces and advances. The pieces must have room.
func (c *cursor) scatter(src []byte, sgl []fabric.SGE) {
	for n := 0; n < len(src) && c.i < len(sgl); {
		s := &sgl[c.i]
		k := copy(fabric.BytesAt(s.Addr+uint64(c.off), int(s.Len-c.off)), src[n:])
		n += k
		c.skip(uint32(k), s.Len)
	}
}

// skip advances by k bytes inside the current piece of length n.
func (c *cursor) skip(k, n uint32) {
	if c.off += k; c.off == n {
		c.i, c.off = c.i+1, 0
	}
}

// endsOnWord reports whether n bytes at addr end with a whole aligned word.
func endsOnWord(addr, n uint64) bool { return n >= 8 && (addr+n)&7 == 0 }

// put stores the pieces, n bytes in total, to mapped memory at dst, with the last aligned
// word last and in one store, behind which later loads are not ordered.
// Hot path.
func put(dst uint64, sgl []fabric.SGE, n uint64) {
	orderStores() // after the stores of earlier requests
	if len(sgl) == 1 {
		src := sgl[0].Addr
		if !endsOnWord(dst, n) {
			copy(fabric.BytesAt(dst, int(n)), fabric.BytesAt(src, int(n)))
			return
		}
		last := load8(src + n - 8) // before the copy: the two may overlap
		if n > 8 {
			copy(fabric.BytesAt(dst, int(n-8)), fabric.BytesAt(src, int(n-8)))
		}
		release8(dst+n-8, last)
		return
	}
	var c cursor
	if !endsOnWord(dst, n) {
		c.gather(fabric.BytesAt(dst, int(n)), sgl)
		return
	}
	c.gather(fabric.BytesAt(dst, int(n-8)), sgl)
	var last [8]byte
	c.gather(last[:], sgl)
	release8(dst+n-8, binary.NativeEndian.Uint64(last[:]))
}

// get loads n bytes of mapped memory at src into the pieces.
// Hot path.
func get(sgl []fabric.SGE, src, n uint64) {
	var c cursor
	c.scatter(fabric.BytesAt(src, int(n)), sgl)
}

// atomic8 executes an atomic on the aligned word at addr and returns the old
// value.
func atomic8(op fabric.Op, addr, compare, operand uint64) uint64 {
	w := word(addr)
	if op == fabric.OpFetchAdd {
		return w.Add(operand) - operand
	}
	for {
		old := w.Load()
		if old != compare || w.CompareAndSwap(compare, operand) {
			return old
		}
	}
}

// leastPiece is the length below which a piece of a list is copied through the cache,
// whatever the request's method: each piece starts and drains separately.
const leastPiece = 4 << 10

// putBulk is put for requests that are long enough for a plan. The kernels fence their
// stores, so that the last word follows them as in put. Bulk path.
func putBulk(plan *bulk.Plan, dst uint64, sgl []fabric.SGE, n uint64) {
	orderStores()
	way := plan.Way(n)
	if !endsOnWord(dst, n) {
		var c cursor
		c.gatherBulk(way, dst, n, sgl)
		return
	}
	// The last word is read before the rest is stored, as far as its piece contains it,
	// because source and destination may overlap.
	if s := &sgl[len(sgl)-1]; len(sgl) == 1 {
		last := load8(s.Addr + n - 8)
		var c cursor
		c.gatherBulk(way, dst, n-8, sgl)
		release8(dst+n-8, last)
		return
	}
	var c cursor
	var last [8]byte
	c.gatherBulk(way, dst, n-8, sgl)
	c.gather(last[:], sgl)
	release8(dst+n-8, binary.NativeEndian.Uint64(last[:]))
}

// gatherBulk copies the next n bytes of the pieces to dst and advances.
func (c *cursor) gatherBulk(way bulk.Way, dst uint64, n uint64, sgl []fabric.SGE) {
	for n > 0 && c.i < len(sgl) {
		s := &sgl[c.i]
		k := min(uint64(s.Len-c.off), n)
		if k > 0 {
			bulk.Copy(wayOf(way, k), fabric.BytesAt(dst, int(k)), fabric.BytesAt(s.Addr+uint64(c.off), int(k)))
		}
		dst += k
		n -= k
		c.skip(uint32(k), s.Len)
	}
}

// getBulk is get for requests that are long enough for a plan. Bulk path.
func getBulk(plan *bulk.Plan, sgl []fabric.SGE, src, n uint64) {
	way := plan.Way(n)
	for i := range sgl {
		if k := uint64(sgl[i].Len); k > 0 {
			bulk.Copy(wayOf(way, k), fabric.BytesAt(sgl[i].Addr, int(k)), fabric.BytesAt(src, int(k)))
			src += k
		}
	}
}

func wayOf(way bulk.Way, n uint64) bulk.Way {
	if n < leastPiece {
		return bulk.Cached
	}
	return way
}
