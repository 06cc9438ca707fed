package message

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/mr"
	"github.com/seed33544411/rma/rdv"
	"github.com/seed33544411/rma/scatter"
)

// DefaultPinned is the number of bytes that Pins keeps registered by default. Why not
// smaller: it would not hold a window of 16 messages of 4 MiB, where registration costs
// most. Why not larger: it keeps more garbage alive than most processes can justify.
const DefaultPinned = 64 << 20

// Pins keeps application memory pinned and registered between transfers, for all channels
// of a link. Like these, it belongs to the link's owner.
//
// A slice of the Go heap is kept from the garbage collector as long as it is in here, so
// that an adapter never writes to pages that the runtime returned to the kernel, or to
// memory that it allocated again. The price is that garbage stays, up to the limit;
// Invalidate releases it. Memory that the collector does not manage (mmap, C) is not kept
// by this: Invalidate must be called before it is unmapped, see mr.Cache.
type Pins struct {
	dom   *mr.Domain
	cache *mr.Cache                     // nil: no memory is kept
	most  int64                         // bytes registered for messages that have not arrived
	once  map[*mr.Registration]struct{} // registrations for one transfer each
	stats PinStats

	reading int // messages that are being read, into memory registered here or by their receivers
}

// PinStats counts the uses of Pins and describes what it holds now.
type PinStats struct {
	Hits, Misses uint64 // uses of memory that was registered already, and of other memory
	Evictions    uint64 // registrations ended to make room
	Once         uint64 // misses that were not kept, because there was no room
	Entries      int    // registrations kept, in use and idle
	Bytes        int64  // bytes that they cover
}

// NewPins keeps up to limit bytes registered: DefaultPinned if limit is 0, none if it is
// negative. Memory that operations in flight need beyond that is registered for one
// operation only. Errors wrap mr.ErrSize.
func NewPins(link fabric.Link, limit int64) (*Pins, error) {
	dom, err := mr.NewDomain(mr.Rail{Link: link})
	p := &Pins{dom: dom, once: map[*mr.Registration]struct{}{}}
	if err != nil || limit < 0 {
		return p, err
	}
	limit = cmp.Or(limit, DefaultPinned)
	p.most = limit / 4
	p.cache, err = mr.NewCache(p.dom, mr.CacheOptions{Limit: limit})
	return p, err
}

// Invalidate removes all entries that overlap mem. If transfers use any of them it removes
// nothing, and the error wraps mr.ErrInUse.
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

// Close removes all entries. No transfer may be in flight. Idempotent.
func (p *Pins) Close() error {
	var err error
	if p.cache != nil {
		err = p.cache.Close()
	}
	return errors.Join(err, p.dom.Close())
}

// pin is memory registered for a transfer in flight. The zero value holds nothing.
type pin struct {
	lease      mr.Lease
	once       *mr.Registration // a registration that ends with the transfer
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

// leased returns the pin of a lease on mem.
func leased(l mr.Lease, mem []byte) (pin, error) {
	s, err := l.SGE(0, mem[:1])
	k, err2 := l.RemoteKey(mem)
	if err = errors.Join(err, err2); err != nil {
		return pin{}, err
	}
	return pin{lease: l, lkey: s.LKey, rkey: k.RKeys[0], held: true}, nil
}

// release ends the transfer's use. The cache retries later what it cannot withdraw now.
func (p *Pins) release(x *pin) {
	if !x.held {
		return
	}
	if x.once != nil {
		delete(p.once, x.once)
		_ = x.once.Close() // if the link still uses it, it is released after that
	} else {
		_ = p.cache.Release(x.lease)
	}
	*x = pin{}
}

// Rails are several connections with the peer, numbered as both sides do. The owner of the links
// calls their methods.
type Rails interface {
	// Pins returns what registers memory for connection i, from 1, or nil if there is none.
	Pins(i int) *Pins

	// Read reads the len(dst) bytes at src, whose keys on further connections are keys, and then calls done.
	// Until then dst belongs to it.
	Read(dst []byte, src scatter.Region, keys rdv.RailKeys, done func(error))
}

// railPins is the memory of a message, registered for further connections.
type railPins struct {
	pins [rdv.MaxRails]pin
	keys rdv.RailKeys
}

// Pin is application memory that Pins holds registered for an operation that is not a
// message. The zero value holds nothing.
type Pin struct{ pin }

// LKey is the local key of the memory.
func (x *Pin) LKey() uint32 { return x.lkey }

// Take pins and registers mem, which must not be empty, until Release. A hit does not
// allocate.
func (p *Pins) Take(mem []byte, access fabric.Access) (Pin, error) {
	x, err := p.take(mem, access)
	return Pin{x}, err
}

// Release ends what Take began. Idempotent; on the zero value it has no effect.
func (p *Pins) Release(x *Pin) { p.release(&x.pin) }

// Access rights of application memory: all that a transfer of its direction may need, so
// that the next transfer need not register it again.
const (
	sourceRights = fabric.AccessRemoteRead
	destRights   = fabric.AccessLocalWrite | fabric.AccessRemoteWrite
)
