package mr

import (
	"github.com/seed33544411/rma/fabric"
)

// Piece is memory of an arena. It is a value; copies name the same memory. The
// methods may be called from any goroutine while the piece is live; on a piece
// that was freed they say so, unless they run beside the arena's owner.
type Piece struct {
	slab *slab
	n    int
	gen  uint64
	slot uint32
}

// Live reports whether the piece has not been freed.
func (p Piece) Live() bool {
	return p.slab != nil && p.slot < uint32(len(p.slab.slots)) && p.slab.slots[p.slot]>>linkBits == p.gen
}

// Bytes is the memory, as long as was asked for; nil once the piece has been freed.
// Slices taken before that are not watched: see ArenaOptions.Poison.
func (p Piece) Bytes() []byte {
	if !p.Live() {
		return nil
	}
	off := int(p.slot) * p.slab.size
	return p.slab.mem[off : off+p.n : off+p.n]
}

// SGE names n bytes from off on, for the rail with that index. The error is
// ErrFreed, ErrBounds or ErrNoRail. Does not allocate.
func (p Piece) SGE(rail, off, n int) (fabric.SGE, error) {
	if !p.Live() {
		return fabric.SGE{}, ErrFreed
	}
	if uint(off) > uint(p.n) || uint(n) > uint(p.n-off) {
		return fabric.SGE{}, ErrBounds
	}
	return p.slab.reg.SGE(rail, int(p.slot)*p.slab.size+off, n)
}
