package mr

import (
	"errors"
	"fmt"
	"slices"
)

// room makes room for a registration of n bytes: it evicts idle entries, but only if that
// suffices.
func (c *Cache) room(n int64) error {
	if n > c.o.Limit-c.inUse || c.busy >= c.o.Entries {
		return fmt.Errorf("mr: cache: %w: %d bytes wanted, %d in %d entries are in use, limits %d and %d",
			ErrLimit, n, c.inUse, c.busy, c.o.Limit, c.o.Entries)
	}
	err := c.sweep()
	for n > c.o.Limit-c.stats.Bytes || c.stats.Entries >= c.o.Entries {
		e := c.idle.oldest()
		if e == nil { // the rest is held by peers' descriptors, or by a link
			return errors.Join(fmt.Errorf("mr: cache: %w: %d bytes wanted, %d cannot be withdrawn", ErrLimit, n, c.stats.Bytes-c.inUse), err)
		}
		c.evict(e)
		err = c.sweep()
	}
	return nil
}

func (c *Cache) evict(e *entry) {
	c.stats.Evictions++
	c.retire(e)
}

// retire removes e from the index. The next sweep withdraws it, or, if it is in use, the
// last release.
func (c *Cache) retire(e *entry) {
	c.remove(e)
	if e.refs == 0 {
		c.idle.remove(e)
	}
	c.gone = append(c.gone, e)
}

// sweep withdraws retired entries that are not in use. An entry that a peer's descriptor
// holds (ErrInUse), or a link does not release, stays for the next sweep; the error is the
// link's.
func (c *Cache) sweep() error {
	if len(c.gone) == 0 {
		return nil
	}
	var errs []error
	c.gone = slices.DeleteFunc(c.gone, func(e *entry) bool {
		if e.refs > 0 {
			return false
		}
		if err := e.reg.Close(); err != nil {
			if !errors.Is(err, ErrInUse) {
				errs = append(errs, err)
			}
			return false
		}
		c.stats.Entries--
		c.stats.Bytes -= e.len()
		return true
	})
	return errors.Join(errs...)
}

// Invalidate withdraws all entries that cover any of the n bytes at addr. Call it before
// the memory is unmapped. If any of it is in use nothing is withdrawn and the error wraps
// ErrInUse: complete or cancel the operations first. The memory may be unmapped only after
// nil. Memory that is not in the cache is ignored.
func (c *Cache) Invalidate(addr, n uint64) error {
	if n == 0 {
		return nil
	}
	end := addr + n
	if end < addr {
		return fmt.Errorf("mr: invalidate %d bytes at %#x: %w", n, addr, ErrSize)
	}
	meets := func(e *entry) bool { return e.base < end && addr < e.end }
	lo, hi := c.overlap(addr, end)
	holds := 0
	for _, s := range c.index[lo:hi] {
		holds += s.e.refs + s.e.reg.Holds()
	}
	for _, e := range c.gone {
		if meets(e) {
			holds += e.refs + e.reg.Holds()
		}
	}
	if holds > 0 {
		return &InUseError{Op: "mr: invalidate", Holds: holds}
	}
	for ; hi > lo; hi-- {
		c.retire(c.index[hi-1].e)
		c.stats.Invalidated++
	}
	err := c.sweep()
	for _, e := range c.gone {
		if meets(e) { // a descriptor was resolved meanwhile, or a link failed
			return errors.Join(err, &InUseError{Op: "mr: invalidate", Holds: e.reg.Holds()})
		}
	}
	return nil
}

// Close withdraws everything and admits no new entries. If leases are open, the error wraps
// ErrInUse and their entries are withdrawn by the last Release; Close may be called again.
func (c *Cache) Close() error {
	c.closed = true
	for len(c.index) > 0 {
		c.retire(c.index[len(c.index)-1].e)
	}
	if err := c.sweep(); err != nil {
		return err
	}
	if len(c.gone) > 0 {
		return &InUseError{Op: "mr: close cache", Holds: max(c.stats.Leases, 1)}
	}
	return nil
}

// Stats returns the counts. For the owner.
func (c *Cache) Stats() CacheStats { return c.stats }
