//go:build linux || darwin || freebsd

package tcp

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/offheap"
)

// failed takes the endpoint down if there is a failure. It reports whether the endpoint
// then has no socket.
// Setup path.
func (e *endpoint) failed(f *failure) bool {
	if f == nil {
		return !e.sock.open()
	}
	first, cause := f.status, f.cause
	if !e.drainEnd.IsZero() { // the peer has received the refusal, or has had time to
		f, first, cause = &failure{status: e.resp.status}, fabric.StatusFlushed, &refusedError{e.resp.status}
	}
	if e.goDown(cause) {
		e.req.flush(first)
		e.comps.down(f.status)
		e.hangUp()
		bury(e)
	}
	return !e.sock.open()
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
	if e.cancel != nil {
		e.cancel()
	}
	return true
}

// refusedError is the reason for which this side's endpoint went down after a peer's
// request was refused.
type refusedError struct{ status fabric.Status }

func (r *refusedError) Error() string {
	return "tcp: a request of the peer was refused: " + r.status.String()
}

func (r *refusedError) Unwrap() error { return r.status.Err() }

// refusing waits for the peer's reaction to a refusal that has been sent, on an endpoint that resumes:
// the peer ends the connection. If it is lost instead, the refusal is sent again on the next.
func refusing(e *endpoint) {
	switch {
	case e.drainEnd.IsZero():
		e.drainEnd = time.Now().Add(e.peerTimeout)
	case time.Now().After(e.drainEnd):
		e.failed(&failure{})
	}
}

// endRefusal follows a refusal in flight: this side goes down as well, but the socket stays
// open and its data is discarded until the peer has hung up, because closing it with unread
// data would destroy the refusal.
func (e *endpoint) endRefusal() {
	if !e.goDown(&refusedError{e.resp.status}) {
		return
	}
	e.req.flush(fabric.StatusFlushed)
	e.comps.down(e.resp.status)
	if unix.Shutdown(e.sock.fd, unix.SHUT_WR) != nil {
		e.hangUp()
		return
	}
	e.draining = true
	e.drainEnd = time.Now().Add(e.peerTimeout)
}

// drain discards the data that the peer still sends.
func (e *endpoint) drain() {
	for range rxBudget {
		n, errno := recvBytes(e.sock.fd, fabric.Addr(e.in.buf), len(e.in.buf))
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

// hangUp closes the socket. A peer that would make a connection again is told that it is not lost.
func (e *endpoint) hangUp() {
	if !e.sock.open() {
		return
	}
	if e.resumes {
		e.out.end()
	}
	e.forget()
	e.mu.Lock()
	e.sock.close()
	e.lanes.close()
	e.draining = false
	e.mu.Unlock()
	if e.state.Load() == epClosed {
		e.release()
	}
}

// forget removes e, whose socket is being closed, from the owner's lists.
func (e *endpoint) forget() {
	l := e.l
	if !e.adopted {
		return
	}
	l.tab[e.sock.seat.idx] = nil
	if l.last == e {
		l.last, l.streak = nil, 0
	}
	for i, o := range l.active {
		if o == e {
			last := len(l.active) - 1
			l.active[i] = l.active[last]
			l.active[last] = nil
			l.active = l.active[:last]
			break
		}
	}
}

// release frees the resources of a closed endpoint. Completions that are not delivered
// stay.
func (e *endpoint) release() {
	if e.mem == nil {
		return
	}
	_ = offheap.Free(e.mem, offheap.Staging)
	e.mem, e.in.buf, e.out.stage, e.req.inline = nil, nil, nil, nil
	bury(e)
	e.l.mu.Lock()
	delete(e.l.all, e)
	e.l.mu.Unlock()
}
