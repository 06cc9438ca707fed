package mr

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/seed33544411/rma/fabric"
)

const (
	pageSlots  = 256
	tablePages = 64

	// MaxRegistrations is the number of registrations that a domain holds: as many as the
	// key tables of the software links.
	MaxRegistrations = tablePages * pageSlots
)

// table maps references to live registrations. Lookups are lock-free and run beside add and
// remove. Pages are allocated when needed.
type table struct {
	pages [tablePages]atomic.Pointer[tablePage]

	mu    sync.Mutex
	free  []uint32 // slots that were freed
	next  uint32   // first slot never used
	count uint32   // number of registrations ever made, modulo 2^32
	live  map[*Registration]struct{}
	whole []*Registration // of these, those that own their memory, in the order of addresses
	down  bool

	random [256]byte // read in advance, because a system call is expensive in a virtual machine
	unused int       // bytes of random, at its end

	keys keys
}

type tablePage [pageSlots]atomic.Pointer[Registration]

// add assigns a slot and an epoch to r. finish is called before lookups may find r.
//
// The count in the epoch makes a stale reference miss with certainty for 2^32
// registrations, whatever the slot's history; the random half makes a forged one hit with
// probability 2^-32 per guess.
func (t *table) add(r *Registration, finish func(Ref)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.down {
		return fmt.Errorf("mr: register: domain %w", ErrClosed)
	}
	var slot uint32
	switch n := len(t.free); {
	case n > 0:
		slot, t.free = t.free[n-1], t.free[:n-1]
	case t.next < MaxRegistrations:
		slot = t.next
		t.next++
	default:
		return fmt.Errorf("mr: register: %w: %d registrations are open", ErrLimit, MaxRegistrations)
	}
	if t.unused < 4 {
		_, _ = rand.Read(t.random[:]) // never fails
		t.unused = len(t.random)
	}
	b := t.random[len(t.random)-t.unused:]
	t.unused -= 4
	if t.count++; t.count == 0 {
		t.count = 1 // an epoch is never 0
	}
	finish(Ref{Slot: slot, Epoch: uint64(t.count)<<32 | uint64(binary.LittleEndian.Uint32(b))})
	p := t.pages[slot/pageSlots].Load()
	if p == nil {
		p = new(tablePage)
		t.pages[slot/pageSlots].Store(p)
	}
	if t.live == nil {
		t.live = map[*Registration]struct{}{}
	}
	t.live[r] = struct{}{}
	t.place(r)
	t.keys.add(r)
	p[slot%pageSlots].Store(r)
	return nil
}

// withdraw makes the reference of r stale. Call it once for each registration.
func (t *table) withdraw(r *Registration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range r.within {
		w.open--
	}
	slot := r.key.Ref.Slot
	t.pages[slot/pageSlots].Load()[slot%pageSlots].Store(nil)
	t.keys.remove(r)
	t.free = append(t.free, slot)
}

// forget frees the slot of r, whose memory is released.
func (t *table) forget(r *Registration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.live, r)
	for _, w := range r.within {
		w.parts--
	}
}

// place finds the registrations that own memory of r, or makes r one of those that own theirs.
// t.mu is held.
func (t *table) place(r *Registration) {
	lo := fabric.Addr(r.mem)
	if r.owns() {
		t.whole = slices.Insert(t.whole, t.after(lo), r)
		return
	}
	for i := t.after(lo + uint64(len(r.mem)) - 1); i > 0 && fabric.Overlaps(t.whole[i-1].mem, lo, lo+uint64(len(r.mem))); i-- {
		w := t.whole[i-1]
		w.parts, w.open = w.parts+1, w.open+1
		r.within = append(r.within, w)
	}
}

// after returns the position of the first registration that owns memory behind addr. t.mu is
// held.
func (t *table) after(addr uint64) int {
	return sort.Search(len(t.whole), func(i int) bool { return fabric.Addr(t.whole[i].mem) > addr })
}

// shared reports whether another registration that is not closed lies in memory that r owns.
func (t *table) shared(r *Registration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return r.open > 0
}

// vacate reports whether no other registration that is not released lies in memory that r owns,
// which may then be freed: those to come do not find it.
func (t *table) vacate(r *Registration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.parts > 0 {
		return false
	}
	if i := t.after(fabric.Addr(r.mem)); i > 0 && t.whole[i-1] == r {
		t.whole = slices.Delete(t.whole, i-1, i)
	}
	return true
}

// find returns the live registration with reference ref, or nil.
func (t *table) find(ref Ref) *Registration {
	if ref.Slot >= MaxRegistrations {
		return nil
	}
	p := t.pages[ref.Slot/pageSlots].Load()
	if p == nil {
		return nil
	}
	if r := p[ref.Slot%pageSlots].Load(); r != nil && r.key.Ref.Epoch == ref.Epoch {
		return r
	}
	return nil
}
