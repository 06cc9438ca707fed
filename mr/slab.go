package mr

import "math/bits"

// Slot words: the generation of the slot above linkBits, and below it the
// purpose of a live piece, or the number of the next free slot plus 1. The
// generation is odd while the slot is live; it returns after 2^42 uses.
const (
	linkBits = 21 // a slab of 64 MiB has 2^20 slots of 64 bytes
	linkMask = 1<<linkBits - 1
)

// slab is one registration divided into pieces of one class. Its bookkeeping is in the Go
// heap, never in the registered memory, where a peer or a stray write could change it.
type slab struct {
	arena      *Arena
	reg        *Registration
	mem        []byte
	next, prev *slab // in the class's list of slabs with room, or the pool

	slots []uint64
	size  int    // of a piece, bytes
	class int    // large if it is a separate piece
	per   uint32 // pieces that fit
	live  uint32 // allocated pieces
	fresh uint32 // slots from here on were not used since the slab was cut
	free  uint32 // first free slot below fresh, plus 1
	base  uint64 // generation that fresh slots start from, even
	top   uint64 // no slot ever had a larger one
}

// large is the class of pieces that have a slab to themselves.
const large = -1

// cut makes an empty slab one of class c. The content of slots stays: their generations are
// even, those of pieces are odd, and new ones start above.
func (s *slab) cut(c int) {
	s.class, s.size = c, classSize(c)
	s.per = uint32(len(s.mem) / s.size)
	s.recut()
}

func (s *slab) recut() {
	if uint32(cap(s.slots)) < s.per {
		s.slots = make([]uint64, s.per)
	}
	s.slots = s.slots[:s.per]
	s.fresh, s.free, s.live, s.base = 0, 0, 0, s.top
}

// take allocates a slot. The slab must have room.
func (s *slab) take(purpose uint64) (slot uint32, gen uint64) {
	if s.free != 0 {
		slot = s.free - 1
		w := s.slots[slot]
		s.free = uint32(w & linkMask)
		gen = w>>linkBits + 1
	} else {
		slot = s.fresh
		s.fresh++
		gen = s.base + 1
	}
	s.slots[slot] = gen<<linkBits | purpose
	s.live++
	return slot, gen
}

// give frees a live slot.
func (s *slab) give(slot uint32, gen uint64) {
	s.slots[slot] = (gen+1)<<linkBits | uint64(s.free)
	s.free = slot + 1
	s.live--
	s.top = max(s.top, gen+1)
}

// list is a doubly linked list of slabs.
type list struct{ head *slab }

func (l *list) push(s *slab) {
	s.next, s.prev = l.head, nil
	if l.head != nil {
		l.head.prev = s
	}
	l.head = s
}

func (l *list) remove(s *slab) {
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		l.head = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	}
	s.next, s.prev = nil, nil
}

const (
	// unit is the granule of pieces: a cache line, so that two pieces never
	// share one between two processors, or a processor and a device.
	unit      = 64
	unitShift = 6

	// stepBits gives 4 classes per doubling. Why not fewer: more would be wasted inside
	// pieces (with 2, up to a half). Why not more: more slabs would be partly used.
	stepBits = 2

	// maxClasses covers pieces of up to a quarter of the largest slab.
	maxClasses = (maxSlabShift-2-unitShift)<<stepBits + 1
)

// classOf returns the smallest class that holds n bytes, n ≥ 1. Classes are 1,
// 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20 … units.
func classOf(n int) int {
	u := uint(n-1) >> unitShift // units less 1
	shift := max(bits.Len(u), stepBits+1) - (stepBits + 1)
	return shift<<stepBits + int(u>>shift)
}

// classSize returns the size of pieces of class c in bytes: less than 1.25 n
// + 64 for each n that classOf maps to c.
func classSize(c int) int {
	const steps = 1 << stepBits
	if c < 2*steps {
		return (c + 1) << unitShift
	}
	shift := c>>stepBits - 1
	return (c - shift<<stepBits + 1) << shift << unitShift
}
