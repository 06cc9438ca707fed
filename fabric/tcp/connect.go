//go:build linux || darwin || freebsd

package tcp

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed33544411/rma/fabric"
)

var (
	errSelf      = fmt.Errorf("tcp: connect: %w: an endpoint cannot be connected to itself", fabric.ErrBadAddress)
	errConnected = errors.New("tcp: connect: endpoint was connected before: make a new one")
)

// offer parks a connection until await fetches it, if e may still be connected, or if it is in
// place of one that was lost.
func (e *endpoint) offer(in arrival) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	last := e.attempt.Load()
	switch e.state.Load() {
	case epIdle, epConnecting:
		return in.h.attempt <= firstAttempt && e.park(in)
	case epUp:
		if in.h.attempt == inquiry {
			if e.resumes && e.dials() && in.h.from == e.peer.nonce && in.h.executed == max(last, firstAttempt) {
				e.deserted = in.h.executed
				recall(e.l, e)
			}
			return false
		}
		if !e.resumes || e.dials() || in.h.from != e.peer.nonce || in.h.lane == 0 && in.h.attempt <= max(last, firstAttempt) || in.h.lane > 0 && in.h.attempt != last || !e.park(in) {
			return false
		}
		if in.h.lane == 0 {
			recall(e.l, e)
		}
		return true
	}
	return false
}

// dials reports whether this side makes the connections. It has had one.
func (e *endpoint) dials() bool { return e.nonce < e.peer.nonce }

// Address implements fabric.Endpoint.
func (e *endpoint) Address() []byte {
	a := address{token: e.token, nonce: e.nonce, port: e.l.port, hosts: e.l.cfg.Advertise}
	return a.append(nil)
}

// Connect implements fabric.Endpoint.
// Setup path.
func (e *endpoint) Connect(ctx context.Context, peer []byte) error {
	var a address
	if err := a.parse(peer); err != nil {
		return err
	}
	if a.nonce == e.nonce {
		return errSelf
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := e.startConnect(cancel); err != nil {
		return err
	}
	var j joint
	if e.nonce < a.nonce {
		j = e.dial(ctx, &a)
	} else {
		j = e.await(ctx, &a, answer{attempt: e.l.cfg.attempt()})
	}
	socks, p, err := e.takeSockets(j.conns, j.err)
	return e.endConnect(socks, p, &j, &a, fabric.Shortage(err))
}

// startConnect claims the endpoint for one Connect.
func (e *endpoint) startConnect(cancel context.CancelFunc) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch e.state.Load() {
	case epIdle:
		e.state.Store(epConnecting)
		e.cancel = cancel
		return nil
	case epClosed:
		return fmt.Errorf("tcp: connect: endpoint %w", fabric.ErrClosed)
	}
	return errConnected
}

// endConnect publishes the outcome. After a failure Connect may be called again.
func (e *endpoint) endConnect(socks []socket, p path, j *joint, a *address, err error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cancel = nil
	if e.state.Load() == epClosed {
		closeAll(socks)
		return fmt.Errorf("tcp: connect: endpoint %w", fabric.ErrClosed)
	}
	if err != nil {
		e.state.Store(epIdle)
		return fmt.Errorf("tcp: connect: %w", err)
	}
	use(e, socks, p)
	e.distance = fabric.Distance{Class: p.class.String(), RTT: p.rtt}
	e.resumes, e.resp.resumes, e.peer, e.least = j.attempt != 0, j.attempt != 0, *a, p.crypt
	e.publish(j.reads, a.nonce)
	e.dropParked()
	return nil
}

// publish passes the endpoint, which has a socket, to the owner. mu is held.
func (e *endpoint) publish(peerReads uint32, peer uint64) {
	e.resp.replies.init(peerReads)
	l := e.l
	l.mu.Lock()
	e.with = peer
	if !e.resumes {
		delete(l.byNonce, e.nonce)
	}
	e.state.Store(epUp)
	l.mu.Unlock()
	enter(l, e)
}
