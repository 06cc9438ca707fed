package mr

import "slices"

// span is an entry of the index, with the fields that a search reads.
type span struct {
	base uint64
	e    *entry
}

const (
	recentBits = 6
	recents    = 1 << recentBits
	pageShift  = 12
)

// recentOf spreads pages over the table of recent entries (Fibonacci hashing).
func recentOf(addr uint64) uint64 {
	return addr >> pageShift * 0x9e3779b97f4a7c15 >> (64 - recentBits)
}

// find returns the entry that contains [addr, addr+n), n ≥ 1, or nil.
func (c *Cache) find(addr, n uint64) *entry {
	r := &c.recent[recentOf(addr)]
	if e := *r; e != nil && e.holds(addr, n) {
		return e
	}
	i := c.after(addr)
	if i == 0 {
		return nil
	}
	if e := c.index[i-1].e; e.holds(addr, n) {
		*r = e
		return e
	}
	return nil
}

// holds reports whether [addr, addr+n) is not empty and lies inside e.
func (e *entry) holds(addr, n uint64) bool {
	off, size := addr-e.base, e.end-e.base // off wraps to a large number if addr < e.base
	return off < size && n-1 < size-off    // n = 0 wraps too
}

// after returns the position of the first entry that starts after addr.
func (c *Cache) after(addr uint64) int {
	lo, hi := 0, len(c.index)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); c.index[mid].base > addr {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// within returns the positions [lo, hi) of the entries inside [addr, addr+n).
func (c *Cache) within(addr, n uint64) (lo, hi int) {
	if addr > 0 {
		lo = c.after(addr - 1)
	}
	for hi = lo; hi < len(c.index) && c.index[hi].e.end <= addr+n; hi++ {
	}
	return lo, hi
}

// overlap returns the positions [lo, hi) of the entries that share a byte with
// [addr, end), end > addr.
func (c *Cache) overlap(addr, end uint64) (lo, hi int) {
	hi = c.after(end - 1)
	for lo = hi; lo > 0 && c.index[lo-1].e.end > addr; lo-- { // ends are sorted too
	}
	return lo, hi
}

// insert inserts e, which neither contains an entry nor is contained in one.
func (c *Cache) insert(e *entry) {
	c.index = slices.Insert(c.index, c.after(e.base), span{base: e.base, e: e})
	e.indexed = true
}

// remove removes e from the index and the table of recent entries.
func (c *Cache) remove(e *entry) {
	i := c.after(e.base) - 1
	c.index = slices.Delete(c.index, i, i+1)
	e.indexed = false
	for i := range c.recent {
		if c.recent[i] == e {
			c.recent[i] = nil
		}
	}
}

// lru is the list of idle entries, a ring through root: the most recently used entry after
// it, the oldest before it.
type lru struct{ root entry }

func (l *lru) init() { l.root.next, l.root.prev = &l.root, &l.root }

func (l *lru) push(e *entry) {
	e.prev, e.next = &l.root, l.root.next
	e.prev.next, e.next.prev = e, e
}

func (l *lru) remove(e *entry) {
	e.prev.next, e.next.prev = e.next, e.prev
	e.next, e.prev = nil, nil
}

func (l *lru) oldest() *entry {
	if l.root.prev == &l.root {
		return nil
	}
	return l.root.prev
}
