package shm

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/softlink"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/offheap"
)

const (
	// maxInline fits any control message and a small payload. A queued inline
	// write keeps its bytes in the endpoint: Depth × maxInline of staging.
	maxInline = 128

	// maxIov is the number of pieces of one process_vm call (the kernel's limit is 1024;
	// above 64 the per-piece cost outweighs that of the call).
	maxIov = 64

	// houseEvery is how often an idle Poll checks the sockets, which takes a system call
	// (0.3 µs): often enough to detect a dead peer or a withdrawn segment at once by human
	// standards, at well below 0.1 % of a core.
	houseEvery = time.Millisecond

	// tryAgain is the interval at which a sleeper wakes up to retry operations for which
	// there is no event.
	tryAgain = 16 * time.Millisecond

	// houseLook is the number of polls that found something, and idlePolls of those that
	// did not, between two readings of the clock for housekeeping.
	houseLook = 64
	idlePolls = 8
)

// link implements fabric.Link. mu guards fields that other goroutines than the owner
// change; all fields below "owner" belong to the owner.
type link struct {
	opts Options
	caps fabric.Caps
	host [16]byte

	keys    *softlink.KeyTable
	ctlFD   int
	ctl     []byte
	hdr     *ctlHeader
	table   []tableEntry
	serving atomic.Uint32 // key that Poll is using for a peer

	sendWake func(sock int) error // a variable so that tests can make it fail

	mu       sync.Mutex
	closed   bool
	regions  map[*region]struct{}
	segments map[uint32]*segment // own segments by id
	lastSeg  uint32
	all      map[*endpoint]struct{} // every endpoint that is not closed
	hazards  map[*hazard]struct{}   // of endpoints that have called Connect
	left     atomic.Int32           // number of these that have left, readable without l.mu
	joined   []*endpoint            // connected, not yet adopted by the owner
	news     atomic.Bool            // joined or an endpoint's outbox is not empty

	copies copies

	epfd, eventFD, timerFD int

	// owner
	eps        []*endpoint // adopted endpoints, and closed ones with completions left
	heat       []uint16    // by index in eps: polls until the endpoint counts as cold
	turn       int         // index of the cold endpoint that Poll visits next
	visitAll   bool        // the next Poll visits all endpoints
	byFD       map[int32]*endpoint
	next       int    // index at which Poll starts
	houseAt    int64  // Ticks of the next housekeeping
	sinceHouse int    // polls since the clock was read, see houseLook
	served     uint32 // requests of peers that were executed
	sweep      bool   // some endpoint of eps is finished
	events     [32]unix.EpollEvent
	rx         receiver
	vectors    vectors
	houseStep  int64  // houseEvery in ticks
	bits       uint64 // of the sleep word while the owner sleeps
}

// Open opens the link. It fails with fabric.ErrNotSupported if the kernel has no sealed
// memory files.
func Open(o Options) (fabric.Link, error) {
	l, err := open(o)
	if err != nil {
		return nil, fabric.Shortage(err)
	}
	return l, nil
}

func open(o Options) (_ *link, err error) {
	l := &link{
		opts: o, keys: new(softlink.KeyTable), ctlFD: -1, epfd: -1, eventFD: -1, timerFD: -1,
		regions: map[*region]struct{}{}, segments: map[uint32]*segment{},
		all: map[*endpoint]struct{}{}, hazards: map[*hazard]struct{}{}, byFD: map[int32]*endpoint{},
		houseStep: int64(float64(houseEvery) / cpu.NsPerTick()), sendWake: sendWake, bits: sleeping | watching,
		caps: fabric.Caps{
			MaxSGE: maxIov, MaxInline: maxInline, MaxMessage: math.MaxUint32, MaxReads: maxReqs,
			LastByteLast: true, WakesOnWrite: true, AtomicCPU: true, TargetProgress: true, Immediate: true,
			MapsAlloc: !o.DisableSegments,
		},
	}
	defer func() {
		if err != nil {
			l.release()
		}
	}()
	if l.host, err = hostID(); err != nil {
		return nil, err
	}
	l.initCopies()
	if l.ctlFD, err = newMemfd("rma-shm-control", ctlSize, ctlSize); err != nil {
		return nil, errors.Join(fabric.ErrNotSupported, err)
	}
	if l.ctl, err = offheap.Map(l.ctlFD, ctlSize, offheap.Rings); err != nil {
		return nil, err
	}
	if err = seal(l.ctlFD, true); err != nil {
		return nil, err
	}
	l.hdr = overlay[ctlHeader](l.ctl, 0)
	l.table = overlays[tableEntry](l.ctl, tableOff, tableSlots)
	l.hdr.magic.Store(ctlMagic)
	l.hdr.publishCPUs(cpu.Allowed())
	if l.epfd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("shm: epoll: %w", err)
	}
	if l.eventFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, fmt.Errorf("shm: eventfd: %w", err)
	}
	if l.timerFD, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
		return nil, fmt.Errorf("shm: timerfd: %w", err)
	}
	for _, fd := range []int{l.eventFD, l.timerFD} {
		if err = l.watch(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (l *link) watch(op, fd int, events uint32) error {
	if err := unix.EpollCtl(l.epfd, op, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("shm: epoll_ctl: %w", err)
	}
	return nil
}

// Name implements fabric.Link.
func (l *link) Name() string { return "shm" }

// Caps implements fabric.Link.
func (l *link) Caps() fabric.Caps { return l.caps }

// FD implements fabric.Link. It is an epoll instance with the sockets of all endpoints, a
// timer and an event for other goroutines.
func (l *link) FD() int { return l.epfd }

// Visiting an endpoint costs 5 to 7 ns (loads of a shared word and of local state). With
// many endpoints, only every coldTurns-th Poll visits those without traffic: 64 idle ones
// cost 0.1 µs instead of 0.4 µs, and the first message after a pause waits for less than
// coldTurns such polls. Up to warmFew endpoints are cheaper to visit than to choose from.
const (
	coldAfter = 1024 // polls without a result
	coldTurns = 8
	warmFew   = 8
)

// Poll implements fabric.Link.
// Hot path.
func (l *link) Poll(cs []fabric.Completion) int {
	if l.news.Load() {
		l.attendNews()
	}
	n := 0
	if k := len(l.eps); k > 0 {
		all := l.visitAll || k <= warmFew
		l.visitAll = false
		l.turn++
		at := l.next
		if at >= k {
			at = 0
		}
		for range k {
			if all || l.heat[at] != 0 || (at^l.turn)%coldTurns == 0 {
				n += l.visit(at, cs[n:])
				if n == len(cs) {
					l.next = at + 1 // start with the others next time
					l.visitAll = all
					break
				}
			}
			if at++; at == k {
				at = 0
			}
		}
	}
	// A busy link does its housekeeping as well, less often. Not every Poll reads the
	// clock, because that costs more than everything else in an idle Poll (10 to 40 ns).
	if l.sinceHouse++; n == 0 {
		l.sinceHouse += houseLook/idlePolls - 1
	}
	if l.sinceHouse >= houseLook {
		l.sinceHouse = 0
		if cpu.Ticks() >= l.houseAt {
			l.keepHouse()
		}
	}
	if l.sweep {
		l.sweepClosed()
	}
	return n
}

var _ fabric.Serving = (*link)(nil)

// Served implements fabric.Serving.
// Hot path.
func (l *link) Served() uint32 { return l.served }

// visit polls endpoint at and records how busy it is.
func (l *link) visit(at int, cs []fabric.Completion) int {
	ep := l.eps[at]
	head := ep.in.head
	n := ep.poll(cs)
	if n != 0 || head != ep.in.head || ep.q.len() != 0 {
		l.heat[at] = coldAfter
	} else if l.heat[at] != 0 {
		l.heat[at]--
	}
	return n
}

// keepHouse does the work that needs system calls: messages and hang-ups on the sockets,
// announcements that wait, time-outs.
func (l *link) keepHouse() {
	now := cpu.Ticks()
	l.houseAt = now + l.houseStep
	// Sockets of peers that have gone stay readable until Poll visits their endpoints, so that not
	// every call finds fewer than the one before. A call goes on after the sockets of the last one.
	for range len(l.byFD)/len(l.events) + 1 {
		n, err := unix.EpollWait(l.epfd, l.events[:], 0)
		if err != nil {
			n = 0
		}
		for i := range l.events[:n] {
			l.event(l.events[i])
		}
		if n < len(l.events) {
			break
		}
	}
	if l.left.Load() != 0 {
		l.mu.Lock()
		l.buryHazards()
		l.mu.Unlock()
	}
	for _, ep := range l.eps {
		if !ep.overdue() {
			continue
		}
		if ep.bell.failed {
			ep.bell.failed = false
			ep.bell.wake()
		}
		if ep.sock.stalled {
			ep.sock.flush(l)
		}
	}
}

func (l *link) event(ev unix.EpollEvent) {
	switch fd := int(ev.Fd); fd {
	case l.eventFD, l.timerFD:
		var b [8]byte
		_, _ = unix.Read(fd, b[:])
	default:
		ep := l.byFD[ev.Fd]
		if ep == nil {
			return
		}
		if ev.Events&(unix.EPOLLIN|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
			readSocket(ep, true)
		}
		if ev.Events&unix.EPOLLOUT != 0 && ep.isUp() {
			ep.sock.flush(l)
		}
	}
}

// attendNews adopts endpoints that Connect has finished, and retries announcements that did
// not fit a socket.
func (l *link) attendNews() {
	l.news.Store(false)
	l.mu.Lock()
	joined := l.joined
	l.joined = nil
	l.mu.Unlock()
	for _, ep := range joined {
		ep.adopted, ep.index = true, len(l.eps)
		l.eps = append(l.eps, ep)
		l.heat = append(l.heat, coldAfter)
		if !ep.isUp() {
			continue // failed or closed before it was polled
		}
		l.byFD[int32(ep.sock.fd)] = ep
		if err := l.watch(unix.EPOLL_CTL_ADD, ep.sock.fd, unix.EPOLLIN); err != nil {
			ep.fail(fabric.StatusPeerGone, err)
		}
	}
	for _, ep := range l.eps {
		if ep.isUp() {
			ep.sock.flush(l)
		}
	}
}

// sweepClosed drops endpoints that are closed and have nothing to report.
func (l *link) sweepClosed() {
	l.sweep = false
	kept := l.eps[:0]
	for _, ep := range l.eps {
		if ep.state.Load() != stateClosed || ep.cq.Len() != 0 {
			l.heat[len(kept)] = l.heat[ep.index]
			ep.index = len(kept)
			kept = append(kept, ep)
		} else {
			ep.adopted = false
		}
	}
	clear(l.eps[len(kept):])
	l.eps, l.heat = kept, l.heat[:len(kept)]
}

// kick wakes the owner by making FD readable.
func (l *link) kick() {
	l.news.Store(true)
	_, _ = unix.Write(l.eventFD, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

var _ fabric.Watching = (*link)(nil)

// Watch implements fabric.Watching.
func (l *link) Watch(on bool) {
	if l.bits = sleeping; on {
		l.bits |= watching
	}
}

// Arm implements fabric.Link. Ordering partner: doorbell.wake. The store to sleep precedes
// the reads of the rings here; the peer's stores to the rings precede its read of sleep.
// One of the two sees the other.
//
// A plain write leaves no trace in the rings: a goroutine that polls its own memory must
// check it once more between Arm and sleeping. The same order holds between that check and
// the peer's write: a peer that reads a sleep word without the bit watching has made its write
// visible before the owner's next Arm, and so before the check of an owner that watches.
func (l *link) Arm() (bool, error) {
	if l.hdr == nil {
		return false, fmt.Errorf("shm: arm: %w", fabric.ErrClosed)
	}
	l.hdr.sleep.Store(l.hdr.sleep.Load() | l.bits)
	pending, overdue := l.news.Load(), false
	for _, ep := range l.eps {
		if pending {
			break
		}
		pending = ep.ready()
		overdue = overdue || ep.overdue()
	}
	if pending {
		l.awake()
		l.visitAll = true
		return false, nil
	}
	if overdue {
		spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(tryAgain))}
		if err := unix.TimerfdSettime(l.timerFD, 0, &spec, nil); err != nil {
			l.awake()
			return false, fmt.Errorf("shm: timerfd_settime: %w", err)
		}
	}
	return true, nil
}

// awake clears the sleep word.
func (l *link) awake() {
	if s := l.hdr.sleep.Load(); s&sleeping != 0 {
		l.hdr.sleep.Store(s&^(nextSleep-1) + nextSleep)
	}
}

// Disarm implements fabric.Link.
func (l *link) Disarm() {
	if l.hdr == nil {
		return
	}
	l.awake()
	l.houseAt = 0 // the next Poll reads the event that made FD readable
	l.sinceHouse = houseLook
	l.visitAll = true
}

// Close implements fabric.Link. Memory that a peer may still be writing to is released when
// that has ended, see hazard.
func (l *link) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	var eps []*endpoint
	for ep := range l.all {
		eps = append(eps, ep)
	}
	var open []*region
	forgotten := 0
	for r := range l.regions {
		open = append(open, r)
		if !r.withdrawn {
			forgotten++
		}
	}
	l.mu.Unlock()
	for _, ep := range eps {
		_ = ep.Close()
	}
	var err error
	if forgotten > 0 {
		err = fmt.Errorf("shm: close: %w: %d of them", fabric.ErrRegionsOpen, forgotten)
	}
	for _, r := range open {
		err = errors.Join(err, r.Close())
	}
	l.mu.Lock()
	l.buryLater(minBurial)
	l.mu.Unlock()
	l.release()
	return err
}

// release releases the resources of open.
func (l *link) release() {
	for _, fd := range []*int{&l.ctlFD, &l.epfd, &l.eventFD, &l.timerFD} {
		if *fd >= 0 {
			_ = unix.Close(*fd)
			*fd = -1
		}
	}
	_ = offheap.Free(l.ctl, offheap.Rings)
	l.ctl, l.hdr, l.table = nil, nil, nil
	l.eps, l.heat, l.joined = nil, nil, nil
}

// ReadPrivate implements fabric.PrivateReader: process_vm_readv on this process itself takes
// as long as on another one, since it finds and pins the pages in the same way.
func (l *link) ReadPrivate(dst, src []byte) bool {
	if l.opts.DisableCMA || len(src) == 0 || len(dst) != len(src) {
		return false
	}
	setIovec(&l.vectors.local[0], fabric.Addr(dst), len(dst))
	l.vectors.remote[0] = unix.RemoteIovec{Base: uintptr(fabric.Addr(src)), Len: len(src)}
	n, err := unix.ProcessVMReadv(unix.Getpid(), l.vectors.local[:1], l.vectors.remote[:1], 0)
	return err == nil && n == len(src)
}
