//go:build linux || darwin || freebsd

package tcp

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/softlink"
	"github.com/seed33544411/rma/internal/offheap"
)

// States of an endpoint. Only Connect and Close change them from other
// goroutines, under endpoint.mu.
const (
	epIdle uint32 = iota
	epConnecting
	epUp
	epDown
	epClosed
)

const (
	// maxDepth bounds EndpointOptions.Depth.
	maxDepth = 1 << 16

	// maxNotes is how many notifications wait for delivery before the endpoint
	// stops reading its socket, which stops the peer in the end.
	maxNotes = 256
)

var (
	errLocal      = fmt.Errorf("tcp: post: %w", fabric.ErrLocalProtection)
	errClosedDown = fmt.Errorf("tcp: post: %w (closed)", fabric.ErrDown)
)

// endpoint implements fabric.Endpoint: one socket, two byte streams. Everything
// is the owner's except what mu guards.
type endpoint struct {
	l     *link
	id    uint32
	state atomic.Uint32
	sock  socket // the first connection, which stands for the endpoint
	path  path
	chunk int // the most that one send hands over

	rx    rx
	bulk  bulk
	tx    tx
	sq    sendq
	rq    replyq
	comps softlink.CompQ
	notes int // notifications in comps

	exec     uint32 // requests of the peer executed
	ackCount uint32 // those among them that want an acknowledgement, since the last
	ackAge   uint8  // visits since the first of them
	ackWant  bool
	ackNow   bool

	refused  bool // a request of the peer was refused: execute no more
	draining bool // down, discarding what comes until the peer hangs up
	drainEnd time.Time

	adopted    bool
	inDeferred bool
	inReady    bool
	seat       seat
	next       *endpoint // in readyList

	token       token
	nonce       uint64
	peerTimeout time.Duration
	incoming    chan incoming
	mem         []byte

	mu     sync.Mutex         // held while sockets are published and closed
	cancel context.CancelFunc // of Connect
	err    error              // the first reason counts
}

// NewEndpoint implements fabric.Link. An endpoint takes 64 KiB of buffers and,
// for each work request of its depth, 64 bytes of slot, 64 of SGEs (16 KiB at least) and 256 for
// inline payload that is touched only when the socket is full.
func (l *link) NewEndpoint(o fabric.EndpointOptions) (fabric.Endpoint, error) {
	depth := o.Depth
	if depth == 0 {
		depth = fabric.DefaultDepth
	}
	if depth < 0 || depth > maxDepth {
		return nil, fmt.Errorf("tcp: new endpoint: depth %d, allowed 1 to %d", o.Depth, maxDepth)
	}
	e := &endpoint{l: l, id: o.ID, sock: socket{fd: -1}, chunk: maxAccess, peerTimeout: o.PeerTimeout, incoming: make(chan incoming, 1+maxLanes)}
	if e.peerTimeout <= 0 {
		e.peerTimeout = fabric.DefaultPeerTimeout
	}
	var r [tokenSize + 8]byte
	_, _ = rand.Read(r[:]) // never fails
	copy(e.token[:], r[:])
	e.nonce = binary.LittleEndian.Uint64(r[tokenSize:])
	mem, err := offheap.Alloc(rxSize+stageSize+pow2(depth)*maxInline, offheap.Staging)
	if err != nil {
		return nil, fmt.Errorf("tcp: new endpoint: %w", err)
	}
	e.mem = mem
	e.rx.buf, mem = mem[:rxSize:rxSize], mem[rxSize:]
	e.tx.stage, mem = mem[:stageSize:stageSize], mem[stageSize:]
	e.sq.init(depth, mem)
	e.comps.Reserve(depth + maxNotes + 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed.Load() {
		return nil, errors.Join(fmt.Errorf("tcp: new endpoint: link %w", fabric.ErrClosed), offheap.Free(e.mem, offheap.Staging))
	}
	l.all[e] = struct{}{}
	l.byNonce[e.nonce] = e
	return e, nil
}

// Post implements fabric.Endpoint. Class: short.
func (e *endpoint) Post(wrs []fabric.WR) (int, error) {
	if s := e.state.Load(); s != epUp {
		return 0, postErr(s)
	}
	if !e.adopted {
		e.l.adopt()
		if e.state.Load() != epUp {
			return 0, fabric.ErrDown
		}
	}
	var err error
	i, bad := 0, false
	for i < len(wrs) {
		w := &wrs[i]
		if why := softlink.CheckShape(w, &linkCaps); why != "" {
			err = &fabric.WRError{Index: i, Op: w.Op, Reason: why}
			break
		}
		if len(w.Local) > maxPieces {
			err = &fabric.WRError{Index: i, Op: w.Op, Reason: "more than 2^20 local pieces"}
			break
		}
		if !e.take(w, uint32(w.Len())) {
			if q := &e.sq; !q.pinged {
				q.pinged, q.ping = true, true
			}
			break
		}
		bad = bad || e.sq.slot(e.sq.tail-1).status != fabric.StatusOK
		i++
	}
	if !e.sock.blocked {
		e.pump()
	}
	if e.bulk.head != e.bulk.tail {
		e.pumpLanes()
	}
	if bad {
		e.retire()
	}
	if len(e.l.active) > e.l.direct {
		e.deferRest()
	}
	return i, err
}

func postErr(state uint32) error {
	switch state {
	case epDown:
		return fabric.ErrDown
	case epClosed:
		return errClosedDown
	}
	return fabric.ErrNotConnected
}

// progress serves one endpoint: what came in, what can go out. Class: short.
func (e *endpoint) progress() {
	if e.draining {
		e.drain()
		return
	}
	empty := e.receive()
	if !e.sock.open() {
		return
	}
	if e.ackWant {
		// Most acknowledgements ride on the answer that the application is about
		// to give; one that found nothing to ride on for a poll goes alone.
		if e.ackAge++; e.ackAge > ackVisits || e.ackCount >= ackBatch {
			e.ackNow = true
		}
	}
	if e.bulk.expect != 0 {
		e.recvLanes()
		if e.rx.held && !e.bulk.on && e.sock.open() {
			empty = e.receive()
		}
		if !e.sock.open() {
			return
		}
	}
	if e.canSend() {
		e.pump()
	}
	if e.bulk.head != e.bulk.tail {
		e.pumpLanes()
	}
	if e.bulk.err != nil && empty {
		if e.laneOver(); !e.sock.open() {
			return
		}
	}
	if e.tx.dead && empty {
		// The peer's last words have been read by now.
		e.fail(fabric.StatusPeerGone, e.tx.err)
		return
	}
	if e.refused && e.tx.idle() && e.rq.empty() {
		e.endRefusal()
	}
}

const (
	// ackVisits is how many visits an acknowledgement is held back for: one, in
	// which the application gets to see the data and may answer.
	ackVisits = 1

	// ackBatch acknowledges at the latest after so many requests that want it, a
	// small part of the usual depth, so that the sender's queue keeps moving.
	ackBatch = 32
)

// fail takes the endpoint down: the oldest request outstanding ends with st, the
// rest are flushed. Class: setup.
func (e *endpoint) fail(st fabric.Status, cause error) {
	if !e.goDown(cause) {
		return
	}
	e.flush(st)
	e.push(fabric.Completion{EP: e.id, Op: fabric.OpDown, Status: st})
	e.hangUp()
}

func (e *endpoint) goDown(cause error) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state.Load() != epUp {
		return false
	}
	if e.err == nil {
		e.err = cause
	}
	e.state.Store(epDown)
	return true
}

// refusedError is why this side's endpoint went down after a peer's request was
// refused.
type refusedError struct{ status fabric.Status }

func (r *refusedError) Error() string {
	return "tcp: a request of the peer was refused: " + r.status.String()
}

func (r *refusedError) Unwrap() error { return r.status.Err() }

// endRefusal follows a refusal that is on its way: this side goes down too, but
// the socket stays open and is emptied until the peer has hung up, because
// closing it with data unread would destroy the refusal.
func (e *endpoint) endRefusal() {
	if !e.goDown(&refusedError{e.rq.status}) {
		return
	}
	e.flush(fabric.StatusFlushed)
	e.push(fabric.Completion{EP: e.id, Op: fabric.OpDown, Status: e.rq.status})
	if unix.Shutdown(e.sock.fd, unix.SHUT_WR) != nil {
		e.hangUp()
		return
	}
	e.draining = true
	e.drainEnd = time.Now().Add(e.peerTimeout)
}

// drain discards what the peer still sends.
func (e *endpoint) drain() {
	for range rxBudget {
		n, errno := recvBytes(e.sock.fd, fabric.Addr(e.rx.buf), len(e.rx.buf))
		if errno == unix.EAGAIN || errno == unix.EINTR {
			if time.Now().Before(e.drainEnd) {
				return
			}
			n = 0
		}
		if errno != 0 || n == 0 {
			e.hangUp()
			return
		}
	}
}

// hangUp closes the socket.
func (e *endpoint) hangUp() {
	if !e.sock.open() {
		return
	}
	e.l.forget(e)
	e.mu.Lock()
	e.sock.close()
	e.bulk.close()
	e.draining = false
	e.mu.Unlock()
	if e.state.Load() == epClosed {
		e.release()
	}
}

// release frees what a closed endpoint holds. Completions not yet delivered stay.
func (e *endpoint) release() {
	if e.mem == nil {
		return
	}
	_ = offheap.Free(e.mem, offheap.Staging)
	e.mem, e.rx.buf, e.tx.stage, e.sq.inline = nil, nil, nil, nil
	e.l.mu.Lock()
	delete(e.l.all, e)
	delete(e.l.byNonce, e.nonce)
	e.l.mu.Unlock()
}

// Err implements fabric.Endpoint.
func (e *endpoint) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state.Load() == epUp {
		return nil
	}
	return e.err
}

// Close implements fabric.Endpoint. Acknowledgements and replies that are due go
// out if the socket takes them at once.
func (e *endpoint) Close() error {
	e.mu.Lock()
	was := e.state.Load()
	if was == epClosed {
		e.mu.Unlock()
		return nil
	}
	e.state.Store(epClosed)
	if e.err == nil {
		e.err = fmt.Errorf("tcp: endpoint %w", fabric.ErrClosed)
	}
	cancel := e.cancel
	e.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	e.l.mu.Lock()
	delete(e.l.byNonce, e.nonce)
	e.l.mu.Unlock()
	e.dropOffers()
	if was == epUp {
		e.refused = true // begin no request of ours
		e.ackNow = e.ackWant
		e.pump()
		e.flush(fabric.StatusFlushed)
	}
	if !e.draining {
		e.hangUp()
		e.release()
	}
	return nil
}
