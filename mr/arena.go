package mr

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/offheap"
)

// ArenaOptions configures an arena. The zero value is usable.
type ArenaOptions struct {
	// Limit bounds the registered memory of the arena, in bytes. Zero
	// means 64 MiB.
	Limit int64

	// Slab is the unit of registration in bytes, rounded up to pages, 64 MiB at most. Zero
	// means 2 MiB, a huge page. Smaller slabs waste less with few pieces of many sizes,
	// larger ones register less often. Pieces above a quarter of it are registered
	// separately.
	Slab int

	// Access is the rights of all pieces. Zero means all.
	Access fabric.Access

	// SmallPages disables huge pages.
	SmallPages bool

	// Poison fills memory when it is freed, and checks before the next use that it was not
	// written meanwhile (ErrUseAfterFree). For tests: it touches every byte twice.
	Poison bool
}

const (
	maxSlabShift = 26
	maxSlab      = 1 << maxSlabShift
	defaultLimit = 64 << 20
)

// Arena allocates pieces of registered off-heap memory: rings, staging buffers, small
// memory of the application.
//
// Memory is registered in slabs. A slab serves one size class at a time; classes
// are multiples of 64 bytes, 4 to a doubling, and pieces start on cache lines.
// A class takes another slab only when all its own are full, and an empty slab
// serves any class. This bounds the waste:
//
//   - A piece of n bytes takes less than 1.25 n + 64 bytes of its slab, and at
//     the end of a slab less than a quarter of it stays unused, because a slab
//     holds 3 pieces at least.
//   - Pieces never move, so that slabs may stay partly used. But the number of
//     slabs is at most the sum over the classes of ⌈m/k⌉, where m is the most
//     pieces of the class that were ever live at once and k how many fit into a
//     slab; and none is added while any is empty.
//
// A piece larger than a quarter of a slab is registered for itself, in whole
// pages, when it is allocated, and withdrawn when it is freed: a matter of
// microseconds and more, not of nanoseconds.
//
// The methods are for one goroutine at a time. There is no lock inside: the owner of a
// link's data path has an arena of its own, and whoever shares one puts a mutex in front.
type Arena struct {
	dom     *Domain
	o       ArenaOptions
	small   int // largest piece out of a slab
	classes [maxClasses]list
	pool    list                    // empty slabs of no class
	dying   []*slab                 // without pieces, but not withdrawn yet
	scratch []byte                  // poison
	held    int64                   // bytes registered
	use     [offheap.Purposes]int64 // bytes of live pieces, each counted with the size of its class
	closed  bool
}

// NewArena makes an arena over the rails of d. It registers nothing yet.
func NewArena(d *Domain, o ArenaOptions) (*Arena, error) {
	if o.Limit < 0 || o.Slab < 0 || o.Slab > maxSlab {
		return nil, fmt.Errorf("mr: arena: limit %d, slab %d: %w", o.Limit, o.Slab, ErrSize)
	}
	if o.Limit == 0 {
		o.Limit = defaultLimit
	}
	if o.Slab == 0 {
		o.Slab = offheap.HugePage
	}
	if o.Access == 0 {
		o.Access = fabric.AccessAll
	}
	o.Slab = offheap.RoundUp(o.Slab)
	return &Arena{dom: d, o: o, small: o.Slab / 4}, nil
}

// Alloc returns a piece of n bytes, n ≥ 1, which p says the purpose of. Its
// content is undefined. The error wraps ErrLimit when the arena's memory is
// used up, ErrSize for what can never be, or is the system's. While the class has
// room there is no system call.
// Hot path.
func (a *Arena) Alloc(n int, p offheap.Purpose) (Piece, error) {
	if uint(n-1) < uint(a.small) && int(p) < offheap.Purposes {
		if s := a.classes[classOf(n)].head; s != nil {
			return a.take(s, n, p)
		}
	}
	return a.allocSlow(n, p)
}

// take hands out a piece of s, which has room.
func (a *Arena) take(s *slab, n int, p offheap.Purpose) (Piece, error) {
	slot, gen, used := s.take(uint64(p))
	if s.live == s.per && s.class != large {
		a.classes[s.class].remove(s)
	}
	a.use[p] += int64(s.size)
	piece := Piece{slab: s, n: n, gen: gen, slot: slot}
	if a.o.Poison && used {
		if err := a.checkPoison(s, slot); err != nil {
			return Piece{}, errors.Join(err, a.Free(piece))
		}
	}
	return piece, nil
}

func (a *Arena) allocSlow(n int, p offheap.Purpose) (Piece, error) {
	switch {
	case a.closed:
		return Piece{}, fmt.Errorf("mr: arena: %w", ErrClosed)
	case n <= 0 || int(p) >= offheap.Purposes:
		return Piece{}, fmt.Errorf("mr: arena: %d bytes for %v: %w", n, p, ErrSize)
	}
	var s *slab
	var err error
	if n > a.small {
		if s, err = a.register(n); err != nil {
			return Piece{}, err
		}
		s.class, s.size, s.per = large, len(s.mem), 1
		s.recut()
		return a.take(s, n, p)
	}
	c := classOf(n)
	if s = a.empty(); s == nil {
		if s, err = a.register(a.o.Slab); err != nil {
			return Piece{}, err
		}
	}
	s.cut(c)
	a.classes[c].push(s)
	return a.take(s, n, p)
}

// empty takes an empty slab out of the pool, or away from a class that has kept
// its last one.
func (a *Arena) empty() *slab {
	if s := a.pool.head; s != nil {
		a.pool.remove(s)
		return s
	}
	for i := range a.classes {
		if s := a.classes[i].head; s != nil && s.live == 0 {
			a.classes[i].remove(s)
			return s
		}
	}
	return nil
}

// register adds a slab of n bytes in whole pages, within the limit.
func (a *Arena) register(n int) (*slab, error) {
	fits := func() bool {
		return int64(n) <= a.o.Limit-a.held && int64(offheap.RoundUp(n)) <= a.o.Limit-a.held
	}
	if !fits() {
		if err := a.Trim(); err != nil {
			return nil, err
		}
		if !fits() {
			return nil, fmt.Errorf("mr: arena: %w: %d bytes of %d held, %d more wanted", ErrLimit, a.held, a.o.Limit, n)
		}
	}
	r, err := a.dom.alloc(offheap.RoundUp(n), a.o.Access, offheap.Arenas, !a.o.SmallPages)
	if err != nil {
		return nil, err
	}
	s := &slab{arena: a, reg: r, mem: r.Bytes()}
	a.held += int64(len(s.mem))
	return s, nil
}

// Free takes a piece back. A piece that was freed before, or is not of this
// arena, changes nothing and gives ErrFreed. The caller makes sure that no
// request under way uses the memory.
// Hot path.
func (a *Arena) Free(p Piece) error {
	s := p.slab
	if s == nil || s.arena != a || !p.Live() {
		return ErrFreed
	}
	if a.o.Poison {
		a.poison(s, p.slot)
	}
	a.use[s.slots[p.slot]&linkMask] -= int64(s.size)
	s.give(p.slot, p.gen)
	if s.class == large {
		return a.drop(s)
	}
	l := &a.classes[s.class]
	if s.live == s.per-1 {
		if h := l.head; h != nil && h.live == 0 { // the class has room without its spare
			l.remove(h)
			a.pool.push(h)
		}
		l.push(s)
	}
	// The last slab with room stays the class's, lest a piece that comes and
	// goes has it cut each time.
	if s.live == 0 && (l.head != s || s.next != nil) {
		l.remove(s)
		a.pool.push(s)
	}
	return nil
}

// drop withdraws a slab without live pieces. One that a descriptor of a peer is
// being carried out on, or that a link does not let go, is tried again later,
// and counts as held until then.
func (a *Arena) drop(s *slab) error {
	if err := s.reg.Close(); err != nil {
		a.dying = append(a.dying, s)
		if errors.Is(err, ErrInUse) {
			return nil
		}
		return err
	}
	a.held -= int64(len(s.mem))
	return nil
}

// Trim withdraws all empty slabs and gives their memory back. Alloc does so by
// itself before it gives up for the limit.
func (a *Arena) Trim() error {
	dying := a.dying
	a.dying = nil
	var errs []error
	for _, s := range dying {
		errs = append(errs, a.drop(s))
	}
	for s := a.empty(); s != nil; s = a.empty() {
		errs = append(errs, a.drop(s))
	}
	return errors.Join(errs...)
}

// Close gives everything back. While pieces are live it does nothing and the
// error wraps ErrInUse. Idempotent.
func (a *Arena) Close() error {
	var errs []error
	for p, n := range a.use {
		if n != 0 {
			errs = append(errs, fmt.Errorf("mr: close arena: %d bytes of %v: %w", n, offheap.Purpose(p), ErrInUse))
		}
	}
	if errs != nil {
		return errors.Join(errs...)
	}
	a.closed = true
	if err := a.Trim(); err != nil {
		return err
	}
	if len(a.dying) > 0 {
		return &InUseError{Op: "mr: close arena", Holds: len(a.dying)}
	}
	return nil
}

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

// poisonByte is what freed memory is filled with: an odd word that is neither
// a small number nor an address.
const poisonByte = 0xdb

func (a *Arena) piece(s *slab, slot uint32) []byte {
	off := int(slot) * s.size
	return s.mem[off : off+s.size]
}

func (a *Arena) poison(s *slab, slot uint32) {
	b := a.piece(s, slot)
	for i := range b {
		b[i] = poisonByte
	}
}

// checkPoison returns an error if a free slot was written to.
func (a *Arena) checkPoison(s *slab, slot uint32) error {
	if len(a.scratch) < unit {
		a.scratch = bytes.Repeat([]byte{poisonByte}, unit)
	}
	b := a.piece(s, slot)
	for at := 0; at < len(b); at += unit {
		if !bytes.Equal(b[at:at+unit], a.scratch) {
			return fmt.Errorf("mr: arena: %w: within 64 bytes from offset %d of a piece of %d at %#x",
				ErrUseAfterFree, at, s.size, s.reg.key.Addr+uint64(slot)*uint64(s.size))
		}
	}
	return nil
}
