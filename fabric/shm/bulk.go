package shm

import (
	"encoding/binary"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/bulk"
)

// leastPiece is the length of a piece of a list below which it is copied through the
// cache whatever the request's way: each piece starts and drains anew.
const leastPiece = 4 << 10

// putBulk is put for requests that are long enough for a plan. The kernels fence their
// stores, so that the last word comes behind them as it does in put. Bulk path.
func putBulk(plan *bulk.Plan, dst uint64, sgl []fabric.SGE, n uint64) (fenced bool) {
	orderStores()
	way := plan.Way(n)
	if !endsOnWord(dst, n) {
		var c cursor
		c.gatherBulk(way, dst, n, sgl)
		return false
	}
	// The last word is read before the rest is stored, as far as its piece has all of
	// it: source and destination may overlap.
	if s := &sgl[len(sgl)-1]; len(sgl) == 1 {
		last := load8(s.Addr + n - 8)
		var c cursor
		c.gatherBulk(way, dst, n-8, sgl)
		word(dst + n - 8).Store(last)
		return true
	}
	var c cursor
	var last [8]byte
	c.gatherBulk(way, dst, n-8, sgl)
	c.gather(last[:], sgl)
	word(dst + n - 8).Store(binary.NativeEndian.Uint64(last[:]))
	return true
}

// gatherBulk copies the next n bytes of the pieces to dst and moves on.
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
