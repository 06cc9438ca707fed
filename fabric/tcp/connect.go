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

// offer parks a connection until Connect fetches it, if e may still be connected.
func (e *endpoint) offer(in arrival) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.state.Load()
	return (s == epIdle || s == epConnecting) && e.park(in)
}

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
	var conns []agreed
	var reads uint32
	var err error
	if e.nonce < a.nonce {
		conns, reads, err = e.dial(ctx, &a)
	} else {
		conns, reads, err = e.await(ctx, &a)
	}
	socks, p, err := e.takeSockets(conns, err)
	return e.endConnect(socks, p, reads, a.nonce, fabric.Shortage(err))
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
func (e *endpoint) endConnect(socks []socket, p path, reads uint32, peer uint64, err error) error {
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
	e.path, e.out.chunk = p, wholeSegments(maxAccess, p.mss)
	e.lanes.init(socks[1:], e.l.cfg.LaneMin, p.mss)
	e.publish(socks[0], reads, peer)
	e.dropParked()
	return nil
}

// publish sets the endpoint's socket and passes the endpoint to the owner. mu is held.
func (e *endpoint) publish(s socket, peerReads uint32, peer uint64) {
	e.sock = s
	e.resp.replies.init(peerReads)
	l := e.l
	l.mu.Lock()
	e.with = peer
	delete(l.byNonce, e.nonce)
	l.joined = append(l.joined, e)
	e.state.Store(epUp)
	l.waking.Set() // FD is readable; before fresh: adopt clears the wake-up, and would miss a later one
	l.fresh.Add(1)
	l.mu.Unlock()
	select {
	case l.met <- struct{}{}:
	default:
	}
}
