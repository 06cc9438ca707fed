package shm

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/softlink"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/offheap"
)

// segment is a memory file of this side that peers map.
type segment struct {
	id   uint32
	fd   int
	base uint64
	size uint64
	only *endpoint // whose peer alone maps it; nil: all peers do
}

// region implements fabric.Region.
type region struct {
	link  *link
	mem   []byte
	entry *softlink.Entry
	own   *segment // the segment that is closed with the region, nil if none
	heap  bool     // the region owns mem

	withdrawn bool // guarded by link.mu

	mu     sync.Mutex // guards the fields below against a concurrent Close
	closed bool
}

func (r *region) Bytes() []byte         { return r.mem }
func (r *region) Addr() uint64          { return r.entry.Base }
func (r *region) LKey() uint32          { return r.entry.Key }
func (r *region) Access() fabric.Access { return r.entry.Access }
func (r *region) Key() fabric.RemoteKey {
	return fabric.RemoteKey{Addr: r.entry.Base, Len: r.entry.Len, RKey: r.entry.Key}
}

// Register implements fabric.Link. Setup path. Memory inside a segment of the same link (a
// part of a region from Alloc) is published as such: peers access it by plain loads and
// stores.
func (l *link) Register(mem []byte, access fabric.Access) (fabric.Region, error) {
	if len(mem) == 0 {
		return nil, errors.New("shm: register: no memory: want at least 1 byte")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r, err := l.addRegion(mem, access, l.segmentOf(fabric.Addr(mem), uint64(len(mem))))
	if err != nil {
		return nil, fmt.Errorf("shm: register: %w", err)
	}
	return r, nil
}

// Alloc implements fabric.Link. Setup path. The memory is committed: a later access cannot
// fail for lack of memory. It takes a descriptor. If the system has no descriptor, or less memory
// available, the error wraps fabric.ErrResources; within a memory cgroup the kernel kills a process of
// the group instead.
func (l *link) Alloc(size int, access fabric.Access) (fabric.Region, error) {
	return l.alloc(nil, size, access)
}

// AllocFor implements fabric.PeerAllocator. A rank of many peers has memory for each of them: if all
// mapped it, the n ranks of a job would make n³ mappings.
func (l *link) AllocFor(e fabric.Endpoint, size int, access fabric.Access) (fabric.Region, error) {
	ep, ok := e.(*endpoint)
	if !ok || ep.link != l {
		return nil, errors.New("shm: alloc: not an endpoint of this link")
	}
	return l.alloc(ep, size, access)
}

// alloc is Alloc for the peer of only, or of all peers if that is nil.
func (l *link) alloc(only *endpoint, size int, access fabric.Access) (_ fabric.Region, err error) {
	if size <= 0 || uint64(size) > maxSegment {
		return nil, fmt.Errorf("shm: alloc: %w: %d", offheap.ErrSize, size)
	}
	if l.opts.DisableSegments {
		mem, err := offheap.Alloc(size, offheap.Regions)
		if err != nil {
			return nil, err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		r, err := l.addRegion(mem, access, nil)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("shm: alloc: %w", err), offheap.Free(mem, offheap.Regions))
		}
		r.heap = true
		return r, nil
	}
	whole := offheap.RoundUp(size)
	fd, err := newMemfd("rma-shm-segment", whole, whole)
	if err != nil {
		return nil, fabric.Shortage(err)
	}
	mem, err := offheap.Map(fd, size, offheap.Regions)
	if err == nil {
		err = seal(fd, false)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, errors.Join(fabric.Shortage(err), offheap.Free(mem, offheap.Regions))
	}
	seg := &segment{fd: fd, base: fabric.Addr(mem), size: uint64(whole), only: only}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastSeg++
	if seg.id = l.lastSeg; seg.id == 0 {
		err = errors.New("more than 2^32 segments")
	}
	var r *region
	if err == nil {
		l.segments[seg.id] = seg
		r, err = l.addRegion(mem, access, seg)
	}
	if err != nil {
		delete(l.segments, seg.id)
		_ = unix.Close(fd)
		return nil, errors.Join(fmt.Errorf("shm: alloc: %w", err), offheap.Free(mem, offheap.Regions))
	}
	r.own, r.heap = seg, true
	announce(l, seg, seg.note())
	return r, nil
}

// note returns the announcement of the segment.
func (s *segment) note() note { return note{typ: msgSegment, seg: s.id, size: s.size, fd: s.fd} }

// announce sends n to the peers that map the segment. l.mu is held.
func announce(l *link, s *segment, n note) {
	if s.only != nil {
		if _, live := l.all[s.only]; live {
			s.only.announce(n)
		}
		return
	}
	for ep := range l.all {
		ep.announce(n)
	}
}

// announceTo announces a segment to one peer, if that maps it. l.mu is held.
func (s *segment) announceTo(ep *endpoint) {
	if s.only == nil || s.only == ep {
		ep.announce(s.note())
	}
}

// segmentOf returns the segment of this side that contains [addr, addr+n). l.mu is held.
func (l *link) segmentOf(addr, n uint64) *segment {
	for _, s := range l.segments {
		if off := addr - s.base; off <= s.size && n <= s.size-off {
			return s
		}
	}
	return nil
}

// addRegion registers and publishes mem. l.mu is held.
func (l *link) addRegion(mem []byte, access fabric.Access, seg *segment) (*region, error) {
	if l.closed {
		return nil, fabric.ErrClosed
	}
	e, err := l.keys.Add(fabric.Addr(mem), uint64(len(mem)), access&fabric.AccessAll)
	if err != nil {
		return nil, err
	}
	r := &region{link: l, mem: mem, entry: e}
	l.regions[r] = struct{}{}
	var id uint32
	var off uint64
	if seg != nil {
		id, off = seg.id, e.Base-seg.base
	}
	i := e.Key % tableSlots
	l.table[i].publish(e, id, off)
	l.hdr.used.Store(max(l.hdr.used.Load(), i+1))
	return r, nil
}

// publish makes a region visible to the peers that map the table. One writer at a time
// (link.mu). Ordering partner: peerMemory.read.
func (t *tableEntry) publish(e *softlink.Entry, seg uint32, off uint64) {
	g := t.gen.Load()
	t.gen.Store(g + 1)
	t.key.Store(0)
	t.base.Store(e.Base)
	t.size.Store(e.Len)
	t.flags.Store(uint32(e.Access))
	t.seg.Store(seg)
	t.segOff.Store(off)
	t.key.Store(e.Key)
	t.gen.Store(g + 2)
}

// withdraw removes the region from the table.
func (t *tableEntry) withdraw() {
	g := t.gen.Load()
	t.gen.Store(g + 1)
	t.key.Store(0)
	t.gen.Store(g + 2)
}

// Close implements fabric.Region. Setup path. When it returns nil no correct peer reads or
// writes private memory any longer, so that it may be unmapped or reused. The first call
// waits for that, useWait at most; see hazard.
func (r *region) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	l := r.link
	l.mu.Lock()
	wait := time.Duration(0)
	if !r.withdrawn {
		r.withdraw()
		wait = useWait
	}
	l.mu.Unlock()
	if !l.quiet(r.entry.Key, wait) {
		return fmt.Errorf("shm: close region: %w: a peer is copying, or was stopped while copying: close again later", fabric.ErrInUse)
	}
	r.closed = true
	l.mu.Lock()
	delete(l.regions, r)
	if l.closed {
		l.buryHazards()
	}
	l.mu.Unlock()
	mem := r.mem
	r.mem = nil
	if !r.heap {
		return nil
	}
	return offheap.Free(mem, offheap.Regions)
}

// withdraw removes the region from the table. l.mu is held.
func (r *region) withdraw() {
	l := r.link
	r.withdrawn = true
	l.keys.Remove(r.entry.Key)
	l.table[r.entry.Key%tableSlots].withdraw()
	s := r.own
	if s == nil {
		return
	}
	delete(l.segments, s.id)
	announce(l, s, note{typ: msgGone, seg: s.id, fd: -1})
	_ = unix.Close(s.fd)
}

// tellAgain announces a segment to a peer that could not receive its descriptor.
func (l *link) tellAgain(ep *endpoint, seg uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.segments[seg]; s != nil {
		s.announceTo(ep)
	}
}

// Map implements fabric.Mapper.
func (l *link) Map(e fabric.Endpoint, need fabric.Access, rkey uint32, addr uint64, n int) (mem []byte, release func() error, later bool) {
	ep, ok := e.(*endpoint)
	if !ok || ep.link != l || !ep.isUp() || n <= 0 {
		return nil, nil, false
	}
	x := ep.lookup(rkey, addr, uint64(n), need)
	if x == nil || x.mem == 0 {
		return nil, nil, x != nil && x.seg != 0 && ep.isUp()
	}
	seg := ep.mem.segs[x.seg]
	seg.holders.Add(1)
	return fabric.BytesAt(x.mem+(addr-x.base), n), seg.release, false
}

// Attach implements fabric.Attacher.
func (l *link) Attach(e fabric.Endpoint) fabric.Attachment {
	ep, ok := e.(*endpoint)
	if !ok || ep.link != l || !ep.cma.works || !ep.isUp() {
		return nil
	}
	fd, err := unix.PidfdOpen(ep.cma.pid, 0)
	if err != nil {
		return nil
	}
	if hungUp(ep.cma.sock) { // otherwise the descriptor is the peer's: it lives
		_ = unix.Close(fd)
		return nil
	}
	a := &attachment{pid: ep.cma.pid, pidfd: fd, aliveAt: cpu.Ticks(), step: l.houseStep, ctl: ep.ctl.hold(), copies: &l.copies}
	a.windows.Store(&[]window{})
	ep.mem.attached = append(ep.mem.attached, a)
	ep.mem.show()
	return a
}
