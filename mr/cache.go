package mr

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/seed33544411/rma/fabric"
)

// CacheOptions configures a cache. The zero value is usable.
type CacheOptions struct {
	// Limit bounds the bytes that the cache keeps registered, in use and idle.
	// Zero means 256 MiB.
	Limit int64

	// Entries bounds the number of registrations. Zero means 1024: a sixteenth of a
	// domain's capacity. The index is an array that insertions move, which is cheap
	// compared with the system calls of a registration up to about 10000.
	Entries int
}

// Cache keeps memory of the application registered between operations, because a
// registration takes microseconds and more, and its reuse tens of nanoseconds.
//
// A request that lies inside a cached range and needs no further rights is a hit. Any other
// registers exactly the requested range; cached ranges inside the new one retire, and their
// rights are added to it; ranges that overlap it in part stay. So no cached range contains
// another, ranges sorted by their start are sorted by their end too, and a search needs to
// check only the last one that starts at or before an address. (Merging overlapping ranges
// would register a buffer that is used through a sliding window once for each step, each
// time as a whole.) A request inside a range with fewer rights registers the whole range
// again.
//
// Leases count the operations that use an entry. If there is no room for a new entry, idle
// entries are evicted, the least recently used first; entries in use never are, and if
// these alone leave no room Acquire fails with ErrLimit: the caller stages the data or
// waits.
//
// # Stale entries
//
// The cache installs no hooks. A Go object stays pinned, and so reachable and in place,
// while an entry covers it: a hit on it is never stale, and its memory is kept until the
// entry is evicted. A mapping made outside Go is not kept by anything: before its owner
// unmaps it or maps something else there, Invalidate must be called, which fails (ErrInUse)
// while operations use it. Otherwise the device keeps the old pages, and peers would read
// and write memory that is no longer visible.
//
// The methods are for one goroutine at a time, the owner of the data path.
type Cache struct {
	dom *Domain
	o   CacheOptions

	index  []span          // by base, and so by end: none contains another
	recent [recents]*entry // by hash of page: entries in the index
	idle   lru             // in the index, without leases
	gone   []*entry        // removed from the index, not withdrawn yet
	leases leases
	stats  CacheStats
	inUse  int64 // bytes of entries with leases
	busy   int   // entries with leases
	closed bool
}

// CacheStats counts events since the creation of the cache, and describes its present
// content.
type CacheStats struct {
	Hits, Misses, Evictions, Invalidated uint64

	Entries int   // registrations, in use and idle
	Bytes   int64 // bytes that they cover; overlaps count twice
	Leases  int   // not released yet
}

// entry is one registration of the cache.
type entry struct {
	reg        *Registration
	base, end  uint64
	access     fabric.Access
	refs       int
	indexed    bool
	next, prev *entry // in the list of idle entries
}

func (e *entry) len() int64 { return int64(e.end - e.base) }

// NewCache creates an empty cache over the rails of d.
func NewCache(d *Domain, o CacheOptions) (*Cache, error) {
	if o.Limit < 0 || o.Entries < 0 || o.Entries > MaxRegistrations {
		return nil, fmt.Errorf("mr: cache: limit %d, %d entries: %w", o.Limit, o.Entries, ErrSize)
	}
	o.Limit = cmp.Or(o.Limit, 256<<20)
	o.Entries = cmp.Or(o.Entries, 1024)
	c := &Cache{dom: d, o: o}
	c.idle.init()
	return c, nil
}

// Acquire returns a lease on a registration that covers mem with the rights access, from
// the cache or a new one. Release it when the operations that use it have completed. A hit
// makes no system call. The error wraps ErrLimit if too much is in use, or is the link's.
// Hot path.
func (c *Cache) Acquire(mem []byte, access fabric.Access) (Lease, error) {
	if e := c.find(fabric.Addr(mem), uint64(len(mem))); e != nil && e.access&access == access {
		c.stats.Hits++
		return c.lease(e), nil
	}
	return c.miss(mem, access)
}

// lease counts a user of e.
func (c *Cache) lease(e *entry) Lease {
	if e.refs == 0 {
		if e.indexed {
			c.idle.remove(e)
		}
		c.inUse += e.len()
		c.busy++
	}
	e.refs++
	c.stats.Leases++
	return c.leases.take(c, e)
}

// Release ends a lease. A second call, or a lease of another cache, has no effect and
// returns ErrReleased.
func (c *Cache) Release(l Lease) error {
	if l.cache != c {
		return ErrReleased
	}
	e := c.leases.give(l)
	if e == nil {
		return ErrReleased
	}
	c.stats.Leases--
	if e.refs--; e.refs > 0 {
		return nil
	}
	c.inUse -= e.len()
	c.busy--
	if e.indexed && !c.closed {
		c.idle.push(e)
		return nil
	}
	return c.sweep()
}

// miss registers mem.
func (c *Cache) miss(mem []byte, access fabric.Access) (Lease, error) {
	switch {
	case c.closed:
		return Lease{}, fmt.Errorf("mr: cache: %w", ErrClosed)
	case len(mem) == 0:
		return Lease{}, fmt.Errorf("mr: cache: no bytes: %w", ErrSize)
	}
	c.stats.Misses++
	access &= fabric.AccessAll
	want, rights := mem, access
	if e := c.find(fabric.Addr(mem), uint64(len(mem))); e != nil { // it lacks rights
		want = e.reg.Bytes()
	}
	lo, hi := c.within(fabric.Addr(want), uint64(len(want)))
	for _, s := range c.index[lo:hi] {
		rights |= s.e.access
	}
	reg, err := c.register(want, rights)
	if err != nil && (len(want) != len(mem) || rights != access) {
		// The ranges joined to the request may prevent its registration, for example memory
		// that cannot be written. Alone, the request does not fit the index.
		if reg, err2 := c.register(mem, access); err2 == nil {
			e := c.add(reg, access)
			c.gone = append(c.gone, e)
			return c.lease(e), nil
		}
	}
	if err != nil {
		return Lease{}, err
	}
	e := c.add(reg, rights)
	// Evictions may have changed the index.
	lo, hi = c.within(e.base, uint64(e.len()))
	old := make([]*entry, 0, hi-lo)
	for _, s := range c.index[lo:hi] {
		old = append(old, s.e)
	}
	for _, o := range old {
		c.retire(o)
	}
	l := c.lease(e)
	c.insert(e)
	// The next sweep retries what a link does not release now.
	_ = c.sweep()
	return l, nil
}

// register makes room and registers mem.
func (c *Cache) register(mem []byte, access fabric.Access) (*Registration, error) {
	if err := c.room(int64(len(mem))); err != nil {
		return nil, err
	}
	reg, err := c.dom.Register(mem, access)
	if err != nil && c.idle.oldest() != nil && !errors.Is(err, ErrClosed) {
		// The system's limits (locked memory, regions of a device) may be lower than those
		// of the cache.
		for e := c.idle.oldest(); e != nil; e = c.idle.oldest() {
			c.evict(e)
		}
		_ = c.sweep()
		reg, err = c.dom.Register(mem, access)
	}
	return reg, err
}

func (c *Cache) add(reg *Registration, access fabric.Access) *entry {
	k := reg.Key()
	e := &entry{reg: reg, base: k.Addr, end: k.Addr + k.Len, access: access}
	c.stats.Entries++
	c.stats.Bytes += e.len()
	return e
}
