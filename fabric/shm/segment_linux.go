package shm

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/offheap"
)

// cacheSize is how many of the peer's regions an endpoint remembers with their
// place in this address space (direct-mapped by key, 48 bytes each).
const cacheSize = 64

// xlate is a region of the peer as last read from its table, checked.
type xlate struct {
	ent    *tableEntry
	base   uint64
	size   uint64
	mem    uint64 // address of the region's first byte here, 0 if not mapped
	key    uint32
	gen    uint32 // of the table entry; a difference makes the copy stale
	seg    uint32
	access fabric.Access
}

// forget empties the cache.
func (ep *endpoint) forget() {
	var ent *tableEntry
	if len(ep.peerTable) > 0 {
		ent = &ep.peerTable[0]
	}
	for i := range ep.cache {
		ep.cache[i] = xlate{ent: ent, gen: 1} // odd: equals no stable generation
	}
}

// lookup finds the peer's region that key names if it holds [addr, addr+n) and
// has the rights in need, else nil: one load of shared memory. May
// take the endpoint down.
// Hot path.
func (ep *endpoint) lookup(key uint32, addr, n uint64, need fabric.Access) *xlate {
	x := &ep.cache[key%cacheSize]
	if x.key != key || !x.current() || x.mem == 0 && x.seg != 0 {
		if !ep.fill(x, key) {
			return nil
		}
	}
	if !x.holds(addr, n, need) {
		return nil
	}
	return x
}

// holds reports whether [addr, addr+n) lies in the region and it has the rights in need.
func (x *xlate) holds(addr, n uint64, need fabric.Access) bool {
	off := addr - x.base // wraps to something huge below base
	return off <= x.size && n <= x.size-off && x.access&need == need
}

// current reports whether the region is still what x says.
// Hot path.
func (x *xlate) current() bool { return x.gen == x.ent.gen.Load() }

// fill reads the table entry of key into x. Ordering partner: publish.
func (ep *endpoint) fill(x *xlate, key uint32) bool {
	ent := &ep.peerTable[key%tableSlots]
	n := xlate{ent: ent, key: key}
	for try := 0; ; try++ {
		n.gen = ent.gen.Load()
		n.base, n.size = ent.base.Load(), ent.size.Load()
		n.access, n.seg = fabric.Access(ent.flags.Load()), ent.seg.Load()
		off, k := ent.segOff.Load(), ent.key.Load()
		if n.gen&1 == 0 && n.gen == ent.gen.Load() {
			if k != key || key == 0 || n.size > ^uint64(0)-n.base {
				return false
			}
			if n.seg != 0 && !ep.place(&n, off) {
				return false
			}
			*x = n
			return true
		}
		// The owner is changing the entry, or died or misbehaves half-way.
		if try >= 1000 {
			return false
		}
		if try >= 32 {
			cpu.Yield()
		}
	}
}

// place finds where the region of x lies in this address space. A segment that
// has not come through the socket, or that could not be mapped, leaves x.mem 0:
// the region is then reached like private memory.
func (ep *endpoint) place(x *xlate, off uint64) bool {
	m, ok := ep.segs[x.seg]
	if !ok {
		ep.drainSocket()
		if !ep.isUp() {
			return false
		}
		if m, ok = ep.segs[x.seg]; !ok {
			ep.askFor(x.seg)
			return true
		}
	}
	size := uint64(len(m))
	if off > size || x.size > size-off || (off^x.base)&7 != 0 {
		ep.corrupt(fmt.Errorf("%w: region of %d bytes at %d in a segment of %d", ErrCorrupt, x.size, off, size))
		return false
	}
	x.mem = fabric.Addr(m) + off
	return true
}

// drainSocket takes the messages that wait. The end of the stream sets hup.
func (ep *endpoint) drainSocket() {
	rx := &ep.link.rx
	for range 1024 { // a peer that never stops gets no more than that at a time
		if ep.sock < 0 {
			return
		}
		b, fds, err := rx.recv(ep.sock)
		switch {
		case err == unix.EAGAIN:
			return
		case errors.Is(err, ErrCorrupt):
			ep.corrupt(err)
			return
		case errors.Is(err, fabric.ErrResources):
			n, err := parseNote(b)
			if err == nil && (n.typ != msgSegment || len(ep.lacking) >= tableSlots) {
				err = fmt.Errorf("%w: note of type %d with a descriptor", ErrCorrupt, n.typ)
			}
			if err != nil {
				ep.corrupt(err)
				return
			}
			ep.lacking[n.seg] = false
			continue
		case err != nil || len(b) == 0:
			closeFDs(fds)
			ep.hup = true
			ep.warm()
			return
		case len(b) == 1 && b[0] == msgWake && len(fds) == 0:
			continue
		}
		n, err := parseNote(b)
		if err == nil {
			err = ep.takeNote(&n, fds)
		}
		closeFDs(fds)
		if err != nil {
			ep.corrupt(err)
			return
		}
	}
}

// takeNote maps or unmaps a segment of the peer.
func (ep *endpoint) takeNote(n *note, fds []int) error {
	old, have := ep.segs[n.seg]
	switch {
	case n.typ == msgAgain && len(fds) == 0:
		ep.link.tellAgain(ep, n.seg)
		return nil
	case n.typ == msgGone && len(fds) == 0:
		delete(ep.lacking, n.seg)
		if have {
			delete(ep.segs, n.seg)
			ep.forget()
			return offheap.Free(old, offheap.Regions)
		}
		return nil
	case n.typ == msgSegment && len(fds) == 1 && !have && len(ep.segs) < tableSlots:
		delete(ep.lacking, n.seg)
		m, err := mapPeer(fds[0], n.size, offheap.Regions)
		if errors.Is(err, ErrCorrupt) {
			return err
		}
		if err == nil {
			ep.segs[n.seg] = m
		} // else: no address space or too many mappings; see place
		return nil
	}
	return fmt.Errorf("%w: note of type %d for segment %d with %d descriptors", ErrCorrupt, n.typ, n.seg, len(fds))
}

// askEvery is how often segments that came without their descriptors are asked for: a
// process that is out of them stays so for long.
const askEvery = 10 * time.Millisecond

// askFor asks for a segment again whose descriptor did not get in, when there is room for
// one. Until it comes the region is reached like private memory.
func (ep *endpoint) askFor(seg uint32) {
	asked, lacks := ep.lacking[seg]
	now := cpu.Ticks()
	if !lacks || asked || now < ep.askAt {
		return
	}
	ep.askAt = now + int64(float64(askEvery)/cpu.NsPerTick())
	fd, err := unix.FcntlInt(uintptr(ep.sock), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return
	}
	_ = unix.Close(fd)
	ep.lacking[seg] = true
	ep.announce(note{typ: msgAgain, seg: seg, fd: -1})
}

// tellAgain announces a segment to a peer that could not take its descriptor.
func (l *link) tellAgain(ep *endpoint, seg uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.segments[seg]; s != nil {
		ep.announce(note{typ: msgSegment, seg: s.id, size: s.size, fd: s.fd})
	}
}

// announce tells the peer about a segment, now or as soon as the socket has
// room. Any goroutine.
func (ep *endpoint) announce(n note) {
	ep.sockMu.Lock()
	defer ep.sockMu.Unlock()
	if ep.sock < 0 || !ep.isUp() {
		return
	}
	if n.typ == msgGone {
		for i := range ep.outbox {
			if ep.outbox[i].typ == msgSegment && ep.outbox[i].seg == n.seg {
				ep.outbox = append(ep.outbox[:i], ep.outbox[i+1:]...)
				return // the peer never heard of it
			}
		}
	}
	if slices.Contains(ep.outbox, n) {
		return // asked for twice
	}
	ep.outbox = append(ep.outbox, n)
	if ep.send() != nil {
		ep.link.kick() // the owner goes on when there is room
	}
}

// send empties the outbox as far as the socket takes it. sockMu is held.
func (ep *endpoint) send() error {
	var b [maxMsg]byte
	for len(ep.outbox) > 0 {
		n := &ep.outbox[0]
		var err error
		if n.typ == msgSegment {
			err = sendFDs(ep.sock, n.append(b[:0]), n.fd)
		} else {
			err = sendFDs(ep.sock, n.append(b[:0]))
		}
		if err != nil {
			return err
		}
		ep.outbox = ep.outbox[1:]
	}
	ep.outbox = nil
	return nil
}

// flushOutbox is the owner's send: it watches the socket while there is more.
func (ep *endpoint) flushOutbox() {
	ep.sockMu.Lock()
	err := ep.send()
	ep.sockMu.Unlock()
	// Room in the socket is an event; that other sockets' descriptors arrived
	// (ETOOMANYREFS) or memory is back (ENOBUFS) is not.
	ep.stalled = err != nil && err != unix.EAGAIN
	if want := err == unix.EAGAIN; want != ep.wantOut {
		ep.wantOut = want
		ev := uint32(unix.EPOLLIN)
		if want {
			ev |= unix.EPOLLOUT
		}
		_ = ep.link.watch(unix.EPOLL_CTL_MOD, ep.sock, ev)
	}
}
