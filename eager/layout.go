package eager

import "github.com/seed33544411/rma/flowctl"

// Offsets in the region that the peer writes. The cells are two cache lines apart, because
// processors fetch lines in pairs.
const (
	cursorCell = 0
	creditCell = 128
	ringStart  = 256
)

const (
	trailerSize = 8
	metaSize    = 8
)

// A trailer, from the low end: payload length of the message 32, kind 8, flags 8, lap 16.
// It stands in the first block of a message. When the reader returns the other blocks, it
// writes a mark of the same form, with length and flags 0, into each.
type trailer uint64

// Flags of a trailer.
const (
	flagFirst  = 1 << iota
	flagLast   // the message has no further blocks
	flagMeta   // 8 bytes of meta before the trailer
	flagRing   // the message concerns the rings themselves
	flagMore   // another message may follow in the same block, before this one
	flagsKnown = flagFirst | flagLast | flagMeta | flagRing | flagMore
)

func makeTrailer(n uint32, kind, flags uint8, lap uint16) trailer {
	return trailer(n) | trailer(kind)<<32 | trailer(flags)<<40 | trailer(lap)<<48
}

func (t trailer) length() uint32 { return uint32(t) }
func (t trailer) kind() uint8    { return uint8(t >> 32) }
func (t trailer) flags() uint8   { return uint8(t >> 40) }
func (t trailer) lap() uint16    { return uint16(t >> 48) }

// ring is the geometry of a ring, as both ends know it.
type ring struct {
	flowctl.Geometry
	size uint32 // bytes of a block
	most uint32 // blocks of the longest message
}

func newRing(g flowctl.Geometry, blockSize uint32) ring {
	return ring{Geometry: g, size: blockSize, most: max(uint32(g.MaxRun()), g.Control)}
}

// room returns the size of a block without its trailer.
func (r *ring) room() int { return int(r.size) - trailerSize }

// bytes returns the length of all blocks.
func (r *ring) bytes() int { return int(r.Blocks) * int(r.size) }

// offset returns the offset of block pos in the ring.
func (r *ring) offset(pos uint64) int { return int(r.Slot(pos)) * int(r.size) }

// split computes the layout of a message of n bytes: k blocks, of which the first holds
// fill bytes before its trailer (payload, zeros to a multiple of 8, meta). The rest of
// payload and zeros is the run, without a gap, at the front of the memory of the following
// k-1 blocks.
func (r *ring) split(n uint64, meta bool) (k, fill int) {
	body := (n + 7) &^ 7
	extra := uint64(0)
	if meta {
		extra = metaSize
	}
	room, size := uint64(r.room())-extra, uint64(r.size)
	if body <= room {
		return 1, int(body + extra)
	}
	behind := (body - room + size - 1) / size
	first := body - min(body, behind*size)
	return int(behind) + 1, int(first + extra)
}

// runs computes the place of the run of n bytes behind block pos: whole bytes at offset at,
// the rest at the start of the ring.
func (r *ring) runs(pos uint64, n int) (at, whole int) {
	at = r.offset(pos + 1)
	return at, min(n, r.bytes()-at)
}

// limit returns the longest payload of a message of class c.
func (r *ring) limit(c flowctl.Class, meta bool) int {
	k := r.MaxRun()
	if c == flowctl.Control {
		k = int(r.Control)
	}
	n := k*int(r.size) - trailerSize
	if meta {
		n -= metaSize
	}
	return n
}
