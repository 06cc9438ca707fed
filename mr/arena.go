package mr

import (
	"cmp"
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
// A piece larger than a quarter of a slab has its own registration, in whole pages, made
// when it is allocated and withdrawn when it is freed: that takes microseconds and more,
// not nanoseconds.
//
// The methods are for one goroutine at a time, without a lock: the owner of a link's data
// path has its own arena; users that share one need a mutex.
type Arena struct {
	dom     *Domain
	o       ArenaOptions
	small   int // largest piece out of a slab
	classes [maxClasses]list
	pool    list                    // empty slabs of no class
	dying   []*slab                 // without pieces, not withdrawn yet
	held    int64                   // bytes registered
	use     [offheap.Purposes]int64 // bytes of live pieces, with the sizes of their classes
	closed  bool
}

// NewArena creates an arena over the rails of d. It registers nothing yet.
func NewArena(d *Domain, o ArenaOptions) (*Arena, error) {
	if o.Limit < 0 || o.Slab < 0 || o.Slab > maxSlab {
		return nil, fmt.Errorf("mr: arena: limit %d, slab %d: %w", o.Limit, o.Slab, ErrSize)
	}
	o.Limit = cmp.Or(o.Limit, defaultLimit)
	o.Slab = cmp.Or(o.Slab, offheap.HugePage)
	o.Access = cmp.Or(o.Access, fabric.AccessAll)
	o.Slab = offheap.RoundUp(o.Slab)
	return &Arena{dom: d, o: o, small: o.Slab / 4}, nil
}

// Alloc returns a piece of n bytes, n ≥ 1, for purpose p. Its content is undefined. The
// error wraps ErrLimit if the arena's memory is used up, ErrSize for impossible sizes, or
// is the system's. While the class has room there is no system call.
// Hot path.
func (a *Arena) Alloc(n int, p offheap.Purpose) (Piece, error) {
	if uint(n-1) < uint(a.small) && int(p) < offheap.Purposes {
		if s := a.classes[classOf(n)].head; s != nil {
			return a.take(s, n, p), nil
		}
	}
	return a.allocSlow(n, p)
}

// take allocates a piece of s, which has room.
func (a *Arena) take(s *slab, n int, p offheap.Purpose) Piece {
	slot, gen := s.take(uint64(p))
	if s.live == s.per && s.class != large {
		a.classes[s.class].remove(s)
	}
	a.use[p] += int64(s.size)
	return Piece{slab: s, n: n, gen: gen, slot: slot}
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
		return a.take(s, n, p), nil
	}
	c := classOf(n)
	if s = a.empty(); s == nil {
		if s, err = a.register(a.o.Slab); err != nil {
			return Piece{}, err
		}
	}
	s.cut(c)
	a.classes[c].push(s)
	return a.take(s, n, p), nil
}

// empty takes an empty slab from the pool, or from a class that has kept its last one.
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
	r, err := a.dom.Alloc(offheap.RoundUp(n), a.o.Access, offheap.Arenas)
	if err != nil {
		return nil, err
	}
	s := &slab{arena: a, reg: r, mem: r.Bytes()}
	a.held += int64(len(s.mem))
	return s, nil
}

// Free returns a piece. Freeing a piece that was freed before, or that belongs to another
// arena, has no effect and returns ErrFreed. No request in flight may use the memory.
// Hot path.
func (a *Arena) Free(p Piece) error {
	s := p.slab
	if s == nil || s.arena != a || !p.Live() {
		return ErrFreed
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
	// The last slab with room stays with the class, so that repeated allocation and release
	// of one piece does not cut it each time.
	if s.live == 0 && (l.head != s || s.next != nil) {
		l.remove(s)
		a.pool.push(s)
	}
	return nil
}

// drop withdraws a slab without live pieces. If a peer's descriptor or a link still uses
// it, it is retried later, and counts as held until then.
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

// Trim withdraws all empty slabs and frees their memory. Alloc does so before it fails
// because of the limit.
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

// Close frees everything. While pieces are live it has no effect and the error wraps
// ErrInUse. Idempotent.
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

// Piece is memory of an arena. It is a value; copies refer to the same memory. Any
// goroutine may call the methods while the piece is live; on a freed piece they fail,
// unless they run concurrently with the arena's owner.
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

// Bytes returns the memory, of the requested length; nil once the piece has been freed.
// Slices taken before that are not checked.
func (p Piece) Bytes() []byte {
	if !p.Live() {
		return nil
	}
	off := int(p.slot) * p.slab.size
	return p.slab.mem[off : off+p.n : off+p.n]
}

// SGE returns the entry for n bytes from off on, for the rail with that index. The error is
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
