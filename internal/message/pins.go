package message

import (
	"errors"
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/mr"
)

// DefaultPinned is how many bytes Pins keep registered by default. Less would not
// hold a window of 16 messages of 4 MiB, which is where registering costs most; more
// keeps more garbage alive than most processes should have to explain.
const DefaultPinned = 64 << 20

// Pins keeps memory that applications bring without registering it pinned and
// registered between transfers, for all channels of a link. It belongs to the
// link's owner, as they do.
//
// A slice of the Go heap is kept from the collector as long as it is in here:
// pages that the runtime gave back to the kernel, or memory that it handed out
// again, can never be what an adapter still writes to. The price is that garbage
// stays, up to the limit; Invalidate lets it go. Memory that the collector does not
// know (mmap, C) is not kept by anything: Invalidate must be called before it is
// unmapped, see mr.Cache.
type Pins struct {
	dom   *mr.Domain
	cache *mr.Cache                     // nil: nothing is kept
	most  int64                         // bytes that are registered for a message that is not there yet
	once  map[*mr.Registration]struct{} // for one transfer each
	stats PinStats

	reading int // messages that are being read, to memory registered here or by their receivers
}

// PinStats counts what Pins did, and says what it holds now.
type PinStats struct {
	Hits, Misses uint64 // memory that was registered already; that was not
	Evictions    uint64 // to make room
	Once         uint64 // of the misses: not kept, for want of room
	Entries      int    // registrations kept, in use and idle
	Bytes        int64  // that they cover
}

// NewPins keeps up to limit bytes registered: DefaultPinned if that is 0, none if it
// is negative. What operations in flight need beyond that is registered for them
// alone. Errors wrap mr.ErrSize.
func NewPins(link fabric.Link, limit int64) (*Pins, error) {
	dom, err := mr.NewDomain(mr.Rail{Link: link})
	p := &Pins{dom: dom, once: map[*mr.Registration]struct{}{}}
	if err != nil || limit < 0 {
		return p, err
	}
	if limit == 0 {
		limit = DefaultPinned
	}
	p.most = limit / 4
	p.cache, err = mr.NewCache(p.dom, mr.CacheOptions{Limit: limit})
	return p, err
}

// Invalidate forgets all that shares a byte with mem. The error wraps mr.ErrInUse
// while transfers use it: nothing is forgotten then.
func (p *Pins) Invalidate(mem []byte) error {
	at, n := fabric.Addr(mem), uint64(len(mem))
	holds := 0
	for r := range p.once {
		if k := r.Key(); n > 0 && k.Addr < at+n && at < k.Addr+k.Len {
			holds++
		}
	}
	if holds > 0 {
		return &mr.InUseError{Op: "invalidate", Holds: holds}
	}
	if p.cache == nil {
		return nil
	}
	return p.cache.Invalidate(at, n)
}

// Stats returns the counts.
func (p *Pins) Stats() PinStats {
	s := p.stats
	if p.cache != nil {
		c := p.cache.Stats()
		s.Hits, s.Misses, s.Evictions, s.Entries, s.Bytes = c.Hits, c.Misses, c.Evictions, c.Entries, c.Bytes
	}
	return s
}

// Close forgets everything. No transfer may be under way. Idempotent.
func (p *Pins) Close() error {
	var err error
	if p.cache != nil {
		err = p.cache.Close()
	}
	return errors.Join(err, p.dom.Close())
}

// pin is memory registered for a transfer under way. The zero value is none.
type pin struct {
	lease      mr.Lease
	once       *mr.Registration // one that ends with the transfer
	lkey, rkey uint32
	held       bool
}

// take pins and registers mem, which is not empty. A hit does not allocate.
func (p *Pins) take(mem []byte, access fabric.Access) (pin, error) {
	if p.cache != nil {
		l, err := p.cache.Acquire(mem, access)
		switch {
		case err == nil:
			return leased(l, mem)
		case !errors.Is(err, mr.ErrLimit):
			return pin{}, fmt.Errorf("pin %d bytes: %w", len(mem), err)
		}
		p.stats.Once++
	}
	p.stats.Misses++
	r, err := p.dom.Register(mem, access)
	if err != nil {
		return pin{}, fmt.Errorf("register %d bytes for one transfer: %w", len(mem), err)
	}
	p.once[r] = struct{}{}
	return pin{once: r, lkey: r.LKey(0), rkey: r.Key().RKeys[0], held: true}, nil
}

// leased is the pin of a lease on mem.
func leased(l mr.Lease, mem []byte) (pin, error) {
	s, err := l.SGE(0, mem[:1])
	k, err2 := l.RemoteKey(mem)
	if err = errors.Join(err, err2); err != nil {
		return pin{}, err
	}
	return pin{lease: l, lkey: s.LKey, rkey: k.RKeys[0], held: true}, nil
}

// release ends the transfer's use. What the cache cannot withdraw now, it tries
// again later.
func (p *Pins) release(x *pin) {
	if !x.held {
		return
	}
	if x.once != nil {
		delete(p.once, x.once)
		_ = x.once.Close() // what a peer keeps goes when it has let go
	} else {
		_ = p.cache.Release(x.lease)
	}
	*x = pin{}
}

// Pin is memory of an application that Pins hold registered for an operation that
// is no message. The zero value is none.
type Pin struct{ pin }

// LKey is the local key of the memory.
func (x *Pin) LKey() uint32 { return x.lkey }

// Take pins and registers mem, which must not be empty, until Release. A hit does
// not allocate.
func (p *Pins) Take(mem []byte, access fabric.Access) (Pin, error) {
	x, err := p.take(mem, access)
	return Pin{x}, err
}

// Release ends what Take began. Idempotent; of the zero value nothing.
func (p *Pins) Release(x *Pin) { p.release(&x.pin) }

// Rights that memory of applications is registered with: what any transfer of its
// direction may need, so that it need not be registered again for the next.
const (
	sourceRights = fabric.AccessRemoteRead
	destRights   = fabric.AccessLocalWrite | fabric.AccessRemoteWrite
)
