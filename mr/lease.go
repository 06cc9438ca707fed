package mr

import (
	"github.com/seed33544411/rma/fabric"
)

// Lease is the use of a cached registration by an operation in flight. It is a value, for
// the owner of the cache.
type Lease struct {
	cache *Cache
	reg   *Registration
	gen   uint64
	slot  uint32
}

// leases are the slots of a cache's leases; they grow to the largest number that was ever
// open at once. The generation of a slot changes when its lease ends.
type leases struct {
	slots []leaseSlot
	free  uint32 // first free slot plus 1
}

type leaseSlot struct {
	e    *entry
	gen  uint64
	next uint32 // while free: next free slot plus 1
}

func (ls *leases) take(c *Cache, e *entry) Lease {
	if ls.free == 0 {
		ls.slots = append(ls.slots, leaseSlot{})
		ls.free = uint32(len(ls.slots))
	}
	i := ls.free - 1
	s := &ls.slots[i]
	ls.free, s.e = s.next, e
	return Lease{cache: c, reg: e.reg, gen: s.gen, slot: i}
}

// give ends a lease and returns its entry, or nil if it has ended before.
func (ls *leases) give(l Lease) *entry {
	if !ls.live(l) {
		return nil
	}
	s := &ls.slots[l.slot]
	e := s.e
	s.e, s.next = nil, ls.free
	s.gen++
	ls.free = l.slot + 1
	return e
}

func (ls *leases) live(l Lease) bool {
	return l.slot < uint32(len(ls.slots)) && ls.slots[l.slot].gen == l.gen && ls.slots[l.slot].e != nil
}

// Live reports whether the lease has not been released.
func (l Lease) Live() bool { return l.cache != nil && l.cache.leases.live(l) }

// SGE returns the entry for mem, which must lie inside the acquired range or the entry that
// covers it, for the rail with that index. The error is ErrReleased, ErrBounds or
// ErrNoRail. Does not allocate.
func (l Lease) SGE(rail int, mem []byte) (fabric.SGE, error) {
	if !l.Live() {
		return fabric.SGE{}, ErrReleased
	}
	k := &l.reg.key
	off := fabric.Addr(mem) - k.Addr // wraps to a large number if mem lies before
	if len(mem) == 0 || off > k.Len || uint64(len(mem)) > k.Len-off {
		return fabric.SGE{}, ErrBounds
	}
	return l.reg.SGE(rail, int(off), len(mem))
}

// RemoteKey returns the key that peers need to access mem, narrowed to it. The target
// enforces the bounds and rights of the entry, which may be wider, and the key works until
// the entry is withdrawn, which may be long after Release: callers that need stricter
// limits must register the memory themselves. The error wraps ErrReleased or ErrBounds.
func (l Lease) RemoteKey(mem []byte) (Key, error) {
	if !l.Live() {
		return Key{}, ErrReleased
	}
	k := &l.reg.key
	return k.Slice(fabric.Addr(mem)-k.Addr, uint64(len(mem)))
}
