package shm

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/offheap"
)

// cacheSize is the number of the peer's regions that an endpoint caches with their
// addresses in this process (direct-mapped by key, 48 bytes each).
const cacheSize = 64

// maxSegments bounds the segments of a peer that are mapped here. A process may have 65530 mappings
// (vm.max_map_count).
const maxSegments = 4096

// xlate is a checked copy of the peer's table entry of a region.
type xlate struct {
	ent    *tableEntry
	base   uint64
	size   uint64
	mem    uint64 // address in this process of the region's first byte, 0 if not mapped
	key    uint32
	gen    uint32 // of the table entry; another value there makes the copy stale
	seg    uint32
	access fabric.Access
}

// holds reports whether [addr, addr+n) lies in the region and it has the rights in need.
func (x *xlate) holds(addr, n uint64, need fabric.Access) bool {
	off := addr - x.base // wraps to a large number if addr < x.base
	return off <= x.size && n <= x.size-off && x.access&need == need
}

// current reports whether x still equals the table entry.
// Hot path.
func (x *xlate) current() bool { return x.gen == x.ent.gen.Load() }

// peerMemory describes the peer's memory. It belongs to the owner.
type peerMemory struct {
	table   []tableEntry // the peer's, mapped read-only
	cache   [cacheSize]xlate
	segs    map[uint32]*peerSegment // the peer's segments mapped here
	mapped  uint64                  // bytes of segs
	lacking map[uint32]bool         // segments that arrived without a descriptor; true: requested again
	askAt   int64                   // Ticks before which no segment is requested

	attached []*attachment // that copy from the segments
}

// peerSegment is a segment of the peer, mapped here until all who hold it have released it.
type peerSegment struct {
	mem     []byte
	holders atomic.Int32 // from 1: the endpoint
}

// hold keeps the segment mapped, unless it is not any more.
func (s *peerSegment) hold() bool {
	for {
		n := s.holders.Load()
		if n == 0 {
			return false
		}
		if s.holders.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// release lets go of the segment.
func (s *peerSegment) release() error {
	if s.holders.Add(-1) > 0 {
		return nil
	}
	return offheap.Free(s.mem, offheap.Regions)
}

// forget empties the cache.
func (m *peerMemory) forget() {
	var ent *tableEntry
	if len(m.table) > 0 {
		ent = &m.table[0]
	}
	for i := range m.cache {
		m.cache[i] = xlate{ent: ent, gen: 1} // odd: differs from every stable generation
	}
}

// copy copies the entry, which is to be that of key. stable says that the owner was not changing
// it meanwhile.
func (t *tableEntry) copy(key uint32) (x xlate, off uint64, ok, stable bool) {
	x = xlate{ent: t, key: key, gen: t.gen.Load()}
	x.base, x.size = t.base.Load(), t.size.Load()
	x.access, x.seg = fabric.Access(t.flags.Load()), t.seg.Load()
	off, k := t.segOff.Load(), t.key.Load()
	stable = x.gen&1 == 0 && x.gen == t.gen.Load()
	return x, off, stable && k == key && key != 0 && x.size <= ^uint64(0)-x.base, stable
}

// read reads the table entry of key, and the offset of the region in its segment. It
// returns false if the key is not valid. Ordering partner: publish.
func (m *peerMemory) read(key uint32) (x xlate, off uint64, ok bool) {
	for try := 0; ; try++ {
		x, off, ok, stable := m.table[key%tableSlots].copy(key)
		if stable {
			return x, off, ok
		}
		// The owner is changing the entry, or died or misbehaves while doing so.
		if try >= 1000 {
			return xlate{ent: &m.table[key%tableSlots]}, 0, false
		}
		if try >= 32 {
			cpu.Yield()
		}
	}
}

// place finds the address of the region of x in this process. If the segment has not
// arrived through the socket, or could not be mapped, x.mem stays 0: the region is then
// accessed like private memory.
func (m *peerMemory) place(x *xlate, off uint64) error {
	seg, ok := m.segs[x.seg]
	if !ok {
		return nil
	}
	size := uint64(len(seg.mem))
	if off > size || x.size > size-off || (off^x.base)&7 != 0 {
		return fmt.Errorf("%w: region of %d bytes at %d in a segment of %d", ErrCorrupt, x.size, off, size)
	}
	x.mem = fabric.Addr(seg.mem) + off
	return nil
}

// take maps or unmaps a segment of the peer. Segments are committed, so that those of a correct peer
// fit the memory of the host; what goes beyond would only use up the address space of this process.
func (m *peerMemory) take(n *note, fds []int) error {
	old, have := m.segs[n.seg]
	switch {
	case n.typ == msgGone && len(fds) == 0:
		delete(m.lacking, n.seg)
		if have {
			delete(m.segs, n.seg)
			m.mapped -= uint64(len(old.mem))
			m.forget()
			m.show()
			return old.release()
		}
		return nil
	case n.typ == msgSegment && len(fds) == 1 && !have:
		delete(m.lacking, n.seg)
		if len(m.segs) == maxSegments || m.mapped+n.size > hostMemory() {
			return nil // see place
		}
		mem, err := mapPeer(fds[0], n.size, offheap.Regions)
		if errors.Is(err, ErrCorrupt) {
			return err
		}
		if err == nil {
			m.segs[n.seg] = &peerSegment{mem: mem}
			m.mapped += uint64(len(mem))
			m.segs[n.seg].holders.Store(1)
			m.show()
		} // otherwise no address space or too many mappings; see place
		return nil
	}
	return fmt.Errorf("%w: note of type %d for segment %d with %d descriptors", ErrCorrupt, n.typ, n.seg, len(fds))
}

// miss records a segment that arrived without its descriptor; b is the message.
func (m *peerMemory) miss(b []byte) error {
	n, err := parseNote(b)
	if err == nil && (n.typ != msgSegment || len(m.lacking) >= tableSlots) {
		err = fmt.Errorf("%w: note of type %d with a descriptor", ErrCorrupt, n.typ)
	}
	if err == nil {
		m.lacking[n.seg] = false
	}
	return err
}

// askEvery is how often segments that arrived without their descriptors are requested
// again: a process that is out of descriptors stays so for long.
const askEvery = 10 * time.Millisecond

// ask reports whether a segment whose descriptor was not received is to be requested again
// because there is room for one. Until it arrives the region is accessed like private
// memory.
func (m *peerMemory) ask(seg uint32, sock int) bool {
	asked, lacks := m.lacking[seg]
	now := cpu.Ticks()
	if !lacks || asked || now < m.askAt {
		return false
	}
	m.askAt = now + int64(float64(askEvery)/cpu.NsPerTick())
	fd, err := unix.FcntlInt(uintptr(sock), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return false
	}
	_ = unix.Close(fd)
	m.lacking[seg] = true
	return true
}

// release unmaps all segments.
func (m *peerMemory) release() {
	for id, seg := range m.segs {
		delete(m.segs, id)
		_ = seg.release()
	}
	m.table, m.attached, m.mapped = nil, nil, 0
	m.forget()
}
