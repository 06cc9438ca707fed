package mr

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
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
	t.keys.add(r)
	p[slot%pageSlots].Store(r)
	return nil
}

// withdraw makes the reference of r stale. Call it once for each registration.
func (t *table) withdraw(r *Registration) {
	t.mu.Lock()
	defer t.mu.Unlock()
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
}

// shared reports whether r owns memory in which another registration lies that is not
// released, or, if open is set, not closed.
func (t *table) shared(r *Registration, open bool) bool {
	if !r.owns() {
		return false
	}
	lo := fabric.Addr(r.mem)
	t.mu.Lock()
	defer t.mu.Unlock()
	for x := range t.live {
		if x != r && fabric.Overlaps(x.mem, lo, lo+uint64(len(r.mem))) && (x.Live() || !open) {
			return true
		}
	}
	return false
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
