package shm

import (
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/softlink"
	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/internal/topo"
)

// States of an endpoint. new → up in Connect (any goroutine), the rest by the
// owner.
const (
	stateNew uint32 = iota
	stateUp
	stateDown
	stateClosed
)

const maxDepth = 1 << 16

// endpoint implements fabric.Endpoint. Fields belong to the owner unless said
// otherwise; those that Connect fills are constant once state is stateUp.
type endpoint struct {
	link  *link
	state atomic.Uint32
	hup   bool // the peer is gone; what it left in the ring is delivered first
	id    uint32
	depth int

	// Towards the peer.
	cache   [cacheSize]xlate
	out     []frame // ring in the peer's channel
	outTail uint64
	outSeen uint64 // the peer's head as last read
	starved bool   // Post was refused for a full ring
	peerHdr *chanHeader
	peerCtl *ctlHeader
	woken   uint64 // value of the peer's sleep word that was answered
	fence   atomic.Uint64

	// From the peer.
	in     []frame // ring in the own channel
	inHead uint64
	inPub  uint64 // inHead as last published
	ownHdr *chanHeader
	hazard *hazard // of the peer, in the own channel; nil until there is one

	cq softlink.CompQ // holds Depth completions; a place is kept for each pending request
	q  queue          // requests that could not be executed in Post

	downNote   bool // OpDown is still to be reported
	downStatus fabric.Status
	adopted    bool
	index      int   // in link.eps, once adopted
	stalled    bool  // announcements wait for something no event tells of
	wantOut    bool  // the socket is watched for room
	unrung     bool  // the peer sleeps, and the kernel had no room for the message that wakes it
	aliveAt    int64 // Ticks of the last look at the socket on behalf of process_vm calls

	cma       bool
	noCMA     string // why the peer's private memory is not reached by process_vm calls; constant
	pid       int
	cpus      topo.Set // that the peer may run on; empty if unknown
	near      topo.Near
	segs      map[uint32][]byte // the peer's segments mapped here
	lacking   map[uint32]bool   // segments that came without a descriptor; true: asked for again
	askAt     int64             // Ticks before which no segment is asked for
	peerTable []tableEntry
	peerBnc   []byte  // bounce buffers of the peer's requests
	peerMem   []byte  // the peer's channel
	peerCtlM  []byte  // the peer's control segment
	replies   []reply // answers to own requests, in the own channel
	ownBnc    []byte  // bounce buffers of own requests
	peerReply []reply // where answers to the peer's requests go
	err       atomic.Pointer[error]

	// Set-up; mu guards against Close during Connect.
	mu       sync.Mutex
	closing  atomic.Bool
	addr     address
	listener int
	used     bool

	// sockMu guards what follows against announcements, which come from any goroutine.
	sockMu sync.Mutex
	sock   int // the hazard's to close
	outbox []note
}

// NewEndpoint implements fabric.Link. Setup path.
func (l *link) NewEndpoint(o fabric.EndpointOptions) (fabric.Endpoint, error) {
	ep, err := l.newEndpoint(o)
	if err != nil {
		return nil, shortage(err)
	}
	return ep, nil
}

func (l *link) newEndpoint(o fabric.EndpointOptions) (*endpoint, error) {
	if o.Depth == 0 {
		o.Depth = fabric.DefaultDepth
	}
	if o.Depth < 0 || o.Depth > maxDepth {
		return nil, fmt.Errorf("shm: endpoint depth %d: want 1 to %d", o.Depth, maxDepth)
	}
	ep := &endpoint{
		link: l, id: o.ID, depth: o.Depth, listener: -1, sock: -1,
		segs: map[uint32][]byte{}, lacking: map[uint32]bool{},
	}
	ep.cq.Reserve(o.Depth)
	ep.q.init(o.Depth)
	ep.addr.host = l.host
	_, _ = rand.Read(ep.addr.name[:]) // never fails
	_, _ = rand.Read(ep.addr.token[:])
	if err := ep.setUp(); err != nil {
		ep.teardown()
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		ep.teardown()
		return nil, fmt.Errorf("shm: new endpoint: %w", fabric.ErrClosed)
	}
	l.all[ep] = struct{}{}
	return ep, nil
}

// setUp opens the listener that the peer may knock at from now on.
func (ep *endpoint) setUp() (err error) {
	if ep.listener, err = unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return fmt.Errorf("shm: socket: %w", err)
	}
	if err = unix.Bind(ep.listener, socketAddr(ep.addr.name)); err != nil {
		return fmt.Errorf("shm: bind: %w", err)
	}
	if err = unix.Listen(ep.listener, 16); err != nil {
		return fmt.Errorf("shm: listen: %w", err)
	}
	return nil
}

// Address implements fabric.Endpoint.
func (ep *endpoint) Address() []byte { return ep.addr.append(nil) }

// Err implements fabric.Endpoint.
func (ep *endpoint) Err() error {
	if p := ep.err.Load(); p != nil {
		return *p
	}
	return nil
}

func (ep *endpoint) isUp() bool { return ep.state.Load() == stateUp }

// warm makes the next Poll look at the endpoint.
func (ep *endpoint) warm() {
	if ep.adopted {
		ep.link.heat[ep.index] = coldAfter
	}
}

// poll reports completions and events, serves the peer and carries queued
// requests on.
// Hot path.
func (ep *endpoint) poll(cs []fabric.Completion) int {
	n := 0
	if ep.cq.Len() != 0 {
		n = ep.cq.Pop(cs)
	}
	if ep.state.Load() == stateUp {
		if ep.frameReady() {
			n += ep.serve(cs[n:])
		}
		if ep.q.len() != 0 {
			ep.advance()
			n += ep.cq.Pop(cs[n:])
		}
		// Up still: what the peer left behind its last frame may be garbage.
		if ep.hup && ep.isUp() && !ep.frameReady() {
			ep.left()
		}
	}
	if ep.downNote || ep.state.Load() == stateClosed {
		n += ep.pollDown(cs[n:])
	}
	return n
}

// pollDown ends the reports of an endpoint that is down or closed.
func (ep *endpoint) pollDown(cs []fabric.Completion) int {
	n := ep.cq.Pop(cs)
	if ep.cq.Len() != 0 {
		return n
	}
	if ep.downNote && n < len(cs) {
		ep.downNote = false
		cs[n] = fabric.Completion{EP: ep.id, Op: fabric.OpDown, Status: ep.downStatus}
		n++
	}
	if ep.finished() {
		ep.link.sweep = true
	}
	return n
}

// finished says that the owner's list may forget the endpoint.
func (ep *endpoint) finished() bool {
	return ep.state.Load() == stateClosed && ep.cq.Len() == 0
}

// ready reports whether Poll would find something: the last look before
// sleeping. Ordering partner: wakePeer of the other side.
func (ep *endpoint) ready() bool {
	if ep.cq.Len() != 0 || ep.downNote {
		return true
	}
	if !ep.isUp() {
		return false
	}
	if ep.hup || ep.frameReady() {
		return true
	}
	if ep.starved && ep.room(1) {
		ep.satisfied()
		return true
	}
	return ep.q.len() != 0 && (ep.advance() || ep.cq.Len() != 0 || !ep.isUp())
}

// overdue reports whether something is to be tried again without an event.
func (ep *endpoint) overdue() bool { return (ep.stalled || ep.unrung) && ep.isUp() }

// wakePeer wakes the peer if it sleeps. The caller has put a full fence
// between what it published and the call (fullFence, or an atomic store as the
// last thing). Ordering partner: link.Arm.
func (ep *endpoint) wakePeer() {
	if s := ep.peerCtl.sleep.Load(); s&1 != 0 && s != ep.woken {
		ep.ring(s)
	}
}

// ring sends the wake message, once a sleep. A full socket is as good: it has
// something to read in it. Where the kernel has no memory it is sent again soon.
func (ep *endpoint) ring(s uint64) {
	err := ep.link.sendWake(ep.sock)
	if ep.unrung = err == unix.ENOBUFS || err == unix.ENOMEM; !ep.unrung {
		ep.woken = s
	}
}

// sendWake sends the wake message.
func sendWake(sock int) error {
	for {
		if err := unix.Send(sock, wakeMessage, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL); err != unix.EINTR {
			return err
		}
	}
}

// fullFence keeps stores before it ahead of loads behind it: a sequentially
// consistent store to a word of our own, in front of an atomic load.
func (ep *endpoint) fullFence() { ep.fence.Store(0) }

// fail takes the endpoint down for the given reason. The oldest queued request
// gets status, the others are flushed.
func (ep *endpoint) fail(status fabric.Status, reason error) { ep.goDown(status, status, reason) }

// failRequest takes the endpoint down after a request failed with status.
func (ep *endpoint) failRequest(status fabric.Status) {
	if ep.isUp() && refuses(status) {
		ep.peerHdr.refused.Store(uint32(status))
	}
	ep.goDown(status, fabric.StatusFlushed, status.Err())
}

// left takes the endpoint down because the peer has left: as a device does, it names the
// request of the peer that was refused, if one was.
func (ep *endpoint) left() {
	if st := fabric.Status(ep.ownHdr.refused.Load()); refuses(st) {
		ep.goDown(st, fabric.StatusFlushed, fmt.Errorf("a request of the peer was refused: %w", st.Err()))
		return
	}
	ep.fail(fabric.StatusPeerGone, fabric.ErrPeerGone)
}

// refuses says that the status is a target's refusal, which ends both sides.
func refuses(st fabric.Status) bool {
	return st == fabric.StatusRemoteAccess || st == fabric.StatusRemoteInvalid || st == fabric.StatusRemoteOp
}

func (ep *endpoint) goDown(status, oldest fabric.Status, reason error) {
	if !ep.isUp() {
		return
	}
	err := fmt.Errorf("shm: endpoint %d is down: %w", ep.id, reason)
	ep.err.Store(&err)
	ep.downStatus, ep.downNote = status, true
	ep.state.Store(stateDown)
	ep.warm()
	ep.flushQueue(oldest)
	ep.teardown()
}

// corrupt takes the endpoint down because of what the peer wrote.
func (ep *endpoint) corrupt(err error) { ep.fail(fabric.StatusRemoteInvalid, err) }

// Close implements fabric.Endpoint. Setup path.
func (ep *endpoint) Close() error {
	ep.closing.Store(true)
	ep.mu.Lock() // waits for a running Connect, which gives up
	defer ep.mu.Unlock()
	if ep.state.Load() == stateClosed {
		return nil
	}
	ep.downNote = false
	if ep.Err() == nil {
		err := fmt.Errorf("shm: endpoint %d: %w", ep.id, fabric.ErrClosed)
		ep.err.Store(&err)
	}
	ep.state.Store(stateClosed)
	ep.warm()
	ep.flushQueue(fabric.StatusFlushed)
	ep.link.sweep = true
	ep.teardown()
	ep.link.mu.Lock()
	delete(ep.link.all, ep)
	ep.link.countUsers()
	ep.link.mu.Unlock()
	return nil
}

// teardown releases what the endpoint holds. Idempotent. For the owner, or for
// whoever has an endpoint that is not up yet. Lock order: link.mu, then sockMu.
func (ep *endpoint) teardown() {
	ep.sayBye()
	ep.sockMu.Lock()
	if ep.listener >= 0 {
		_ = unix.Close(ep.listener)
		ep.listener = -1
	}
	if ep.sock >= 0 {
		if ep.adopted {
			delete(ep.link.byFD, int32(ep.sock))
			_ = ep.link.watch(unix.EPOLL_CTL_DEL, ep.sock, 0)
		}
		ep.sock = -1
	}
	ep.outbox = nil
	ep.sockMu.Unlock()
	if ep.hazard != nil {
		ep.hazard.leave()
		ep.link.mu.Lock()
		ep.link.buryHazards()
		ep.link.mu.Unlock()
	}
	for id, m := range ep.segs {
		delete(ep.segs, id)
		_ = offheap.Free(m, offheap.Regions)
	}
	ep.out, ep.in, ep.ownHdr, ep.peerHdr, ep.peerCtl, ep.peerTable = nil, nil, nil, nil, nil, nil
	ep.replies, ep.ownBnc, ep.peerReply, ep.peerBnc = nil, nil, nil, nil
	ep.q.release()
	_ = offheap.Free(ep.peerMem, offheap.Rings)
	_ = offheap.Free(ep.peerCtlM, offheap.Rings)
	ep.peerMem, ep.peerCtlM = nil, nil
	ep.forget()
}
