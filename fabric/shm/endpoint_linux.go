package shm

import (
	"cmp"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/softlink"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/internal/topo"
)

// States of an endpoint. Connect (any goroutine) sets new → up, the owner the others.
const (
	stateNew uint32 = iota
	stateUp
	stateDown
	stateClosed
)

const maxDepth = 1 << 16

// endpoint implements fabric.Endpoint. Fields belong to the owner unless stated otherwise.
// Fields that Connect sets are constant once state is stateUp.
//
// Its parts are types of their own: frames to and from the peer, the doorbell, the peer's
// memory, the socket, process_vm calls, and the queue of requests that need the target.
// They report errors of the peer; only the endpoint decides that it is down.
type endpoint struct {
	link  *link
	state atomic.Uint32
	hup   bool // the peer is gone; its last frames are delivered first
	id    uint32
	depth int

	mem  peerMemory
	out  frameSender
	bell doorbell
	in   frameReceiver
	cma  cma
	sock socket

	cq softlink.CompQ // holds Depth completions, with a place reserved for each pending request
	q  queue          // requests that could not be executed in Post

	downNote   bool // OpDown is still to be reported
	downStatus fabric.Status
	adopted    bool
	index      int // in link.eps, after adoption

	own    channel
	peer   channel
	ctl    control
	hazard *hazard // of the peer, in this side's channel; nil until there is one
	cpus   cpu.Set // processors that the peer may run on; empty if unknown
	near   topo.Near
	err    atomic.Pointer[error]

	// Set-up. mu guards against Close during Connect.
	mu    sync.Mutex
	shake handshake
	used  bool
}

// NewEndpoint implements fabric.Link. Setup path.
func (l *link) NewEndpoint(o fabric.EndpointOptions) (fabric.Endpoint, error) {
	ep, err := l.newEndpoint(o)
	if err != nil {
		return nil, fabric.Shortage(err)
	}
	return ep, nil
}

func (l *link) newEndpoint(o fabric.EndpointOptions) (*endpoint, error) {
	o.Depth = cmp.Or(o.Depth, fabric.DefaultDepth)
	if o.Depth < 0 || o.Depth > maxDepth {
		return nil, fmt.Errorf("shm: endpoint depth %d: want 1 to %d", o.Depth, maxDepth)
	}
	ep := &endpoint{
		link: l, id: o.ID, depth: o.Depth,
		mem:  peerMemory{segs: map[uint32]*peerSegment{}, lacking: map[uint32]bool{}},
		bell: doorbell{link: l, sock: -1}, sock: socket{fd: -1}, shake: handshake{listener: -1},
	}
	ep.cq.Reserve(o.Depth)
	ep.q.init(o.Depth)
	if err := ep.shake.listen(l.host); err != nil {
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

// Address implements fabric.Endpoint.
func (ep *endpoint) Address() []byte { return ep.shake.addr.append(nil) }

// Err implements fabric.Endpoint.
func (ep *endpoint) Err() error {
	if p := ep.err.Load(); p != nil {
		return *p
	}
	return nil
}

func (ep *endpoint) isUp() bool { return ep.state.Load() == stateUp }

// warm makes the next Poll visit the endpoint.
func (ep *endpoint) warm() {
	if ep.adopted {
		ep.link.heat[ep.index] = coldAfter
	}
}

// poll reports completions and events, serves the peer and advances queued requests.
// Hot path.
func (ep *endpoint) poll(cs []fabric.Completion) int {
	n := 0
	if ep.cq.Len() != 0 {
		n = ep.cq.Pop(cs)
	}
	if ep.state.Load() == stateUp {
		if ep.in.ready() {
			n += ep.serve(cs[n:])
		}
		if ep.q.len() != 0 {
			ep.advance()
			n += ep.cq.Pop(cs[n:])
		}
		// Only if still up: data of the peer after its last frame may be garbage.
		if ep.hup && ep.isUp() && !ep.in.ready() {
			ep.left()
		}
	}
	if ep.downNote || ep.state.Load() == stateClosed {
		n += ep.pollDown(cs[n:])
	}
	return n
}

// pollDown returns the remaining reports of an endpoint that is down or closed.
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
	if ep.state.Load() == stateClosed {
		ep.link.sweep = true
	}
	return n
}

// ready reports whether Poll would find something. It is the last check before sleeping.
// Ordering partner: doorbell.wake of the other side.
func (ep *endpoint) ready() bool {
	if ep.cq.Len() != 0 || ep.downNote {
		return true
	}
	if !ep.isUp() {
		return false
	}
	if ep.hup || ep.in.ready() {
		return true
	}
	if ep.out.starved && ep.reserve(1) || ep.q.len() != 0 && (ep.advance() || ep.cq.Len() != 0) {
		return true
	}
	return !ep.isUp() // an attempt has taken it down
}

// overdue reports whether something must be retried without an event.
func (ep *endpoint) overdue() bool { return (ep.sock.stalled || ep.bell.failed) && ep.isUp() }

// fail takes the endpoint down for the given reason. The oldest queued request
// gets status, the others are flushed.
func (ep *endpoint) fail(status fabric.Status, reason error) { ep.goDown(status, status, reason) }

// failRequest takes the endpoint down after a request failed with status.
func (ep *endpoint) failRequest(status fabric.Status) {
	if status == fabric.StatusFlushed { // by gone
		ep.left()
		return
	}
	if ep.isUp() && refuses(status) {
		ep.peer.hdr.refused.Store(uint32(status))
	}
	ep.goDown(status, fabric.StatusFlushed, status.Err())
}

// gone returns the status of a request that finds that the peer has left. As on a device, it is
// flushed if a request of the peer was refused.
func gone(ep *endpoint) fabric.Status {
	if refuses(fabric.Status(ep.own.hdr.refused.Load())) {
		return fabric.StatusFlushed
	}
	return fabric.StatusPeerGone
}

// left takes the endpoint down because the peer has left. As a device does, it reports the
// refused request of the peer, if there was one.
func (ep *endpoint) left() {
	if st := fabric.Status(ep.own.hdr.refused.Load()); refuses(st) {
		ep.goDown(st, fabric.StatusFlushed, fmt.Errorf("a request of the peer was refused: %w", st.Err()))
		return
	}
	ep.fail(fabric.StatusPeerGone, fabric.ErrPeerGone)
}

// refuses reports whether status is a target's refusal, which ends both sides.
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
	ep.q.flush(oldest, ep.id, &ep.cq)
	ep.teardown()
}

// corrupt takes the endpoint down because of data that the peer wrote.
func (ep *endpoint) corrupt(err error) { ep.fail(fabric.StatusRemoteInvalid, err) }

// Close implements fabric.Endpoint. Setup path.
func (ep *endpoint) Close() error {
	ep.shake.closing.Store(true)
	ep.mu.Lock() // waits for a running Connect, which then fails
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
	ep.q.flush(fabric.StatusFlushed, ep.id, &ep.cq)
	ep.link.sweep = true
	ep.teardown()
	ep.link.mu.Lock()
	delete(ep.link.all, ep)
	ep.link.countUsers()
	ep.link.mu.Unlock()
	return nil
}

// teardown releases the resources of the endpoint. Idempotent. Called by the owner, or by
// the goroutine that holds an endpoint that is not up yet. Lock order: link.mu, then
// socket.mu.
func (ep *endpoint) teardown() {
	ep.out.bye()
	ep.sock.mu.Lock()
	ep.shake.close()
	if sock := ep.sock.fd; sock >= 0 {
		if ep.adopted {
			delete(ep.link.byFD, int32(sock))
			_ = ep.link.watch(unix.EPOLL_CTL_DEL, sock, 0)
		}
		ep.sock.fd = -1
	}
	ep.sock.outbox = nil
	ep.sock.mu.Unlock()
	if ep.hazard != nil {
		ep.hazard.leave()
		ep.link.mu.Lock()
		ep.link.buryHazards()
		ep.link.mu.Unlock()
	}
	ep.mem.release()
	ep.q.release()
	_ = offheap.Free(ep.peer.mem, offheap.Rings)
	_ = ep.ctl.release()
	ep.own, ep.peer, ep.ctl = channel{}, channel{}, control{}
	ep.out.slots, ep.out.peer, ep.in.slots, ep.in.own = nil, nil, nil, nil
	ep.bell.peer, ep.bell.sock, ep.cma.peer, ep.cma.sock = nil, -1, nil, -1
}
