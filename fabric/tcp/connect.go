//go:build linux || darwin || freebsd

package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
)

var (
	errSelf      = fmt.Errorf("tcp: connect: %w: an endpoint cannot be connected to itself", fabric.ErrBadAddress)
	errConnected = errors.New("tcp: connect: endpoint was connected before: make a new one")
	errStranger  = errors.New("who answered is not the peer")
)

// incoming is a connection whose hello showed this endpoint's token.
type incoming struct {
	conn net.Conn
	h    hello
}

// offer parks a connection until Connect fetches it. A newer one takes the place
// of an older: the peer has given up on that and tries again.
func (e *endpoint) offer(c net.Conn, h hello) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.state.Load(); s != epIdle && s != epConnecting {
		return false
	}
	if h.lane == 0 {
		e.dropOffers()
	}
	if len(e.incoming) == cap(e.incoming) {
		return false
	}
	e.incoming <- incoming{c, h} // has room: only offer sends, under mu
	return true
}

// Address implements fabric.Endpoint.
func (e *endpoint) Address() []byte {
	a := address{token: e.token, nonce: e.nonce, port: e.l.port, hosts: e.l.cfg.Advertise}
	return a.append(nil)
}

// Connect implements fabric.Endpoint. Class: setup.
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
	var conns []net.Conn
	var h hello
	var err error
	if e.nonce < a.nonce {
		conns, h, err = e.dial(ctx, &a)
	} else {
		conns, h, err = e.await(ctx, &a)
	}
	fds, p, err := e.takeSockets(conns, err)
	return e.endConnect(fds, p, h, err)
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

// endConnect publishes the outcome. After a failure Connect may be tried again.
func (e *endpoint) endConnect(fds []int, p path, h hello, err error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cancel = nil
	if e.state.Load() == epClosed {
		closeAll(fds)
		return fmt.Errorf("tcp: connect: endpoint %w", fabric.ErrClosed)
	}
	if err != nil {
		e.state.Store(epIdle)
		return fmt.Errorf("tcp: connect: %w", err)
	}
	e.path, e.chunk = p, wholeSegments(maxAccess, p.mss)
	e.bulk.init(fds[1:], e.l.cfg.LaneMin)
	e.publish(fds[0], h.reads)
	e.dropOffers()
	return nil
}

// publish gives the endpoint its socket and hands it to the owner. mu is held.
func (e *endpoint) publish(fd int, peerReads uint32) {
	e.fd = fd
	e.rq.init(peerReads)
	l := e.l
	l.mu.Lock()
	delete(l.byToken, e.token)
	l.joined = append(l.joined, e)
	l.fresh.Add(1)
	l.mu.Unlock()
	e.state.Store(epUp)
	select {
	case l.met <- struct{}{}:
	default:
	}
	l.wake()
}

// dropOffers closes connections that were parked and are not wanted.
func (e *endpoint) dropOffers() {
	for {
		select {
		case in := <-e.incoming:
			_ = in.conn.Close()
		default:
			return
		}
	}
}

// dial connects to the first of the peer's hosts that answers as the peer, and
// makes the lanes that both sides want.
func (e *endpoint) dial(ctx context.Context, a *address) ([]net.Conn, hello, error) {
	var errs []error
	for i, host := range a.hosts {
		// A host that drops packets must not use up the time of those behind it.
		hctx, cancel := ctx, context.CancelFunc(func() {})
		if dl, ok := ctx.Deadline(); ok {
			hctx, cancel = context.WithTimeout(ctx, time.Until(dl)/time.Duration(len(a.hosts)-i))
		}
		to := netip.AddrPortFrom(host, a.port)
		c, h, err := e.dialOne(hctx, to, a, 0)
		cancel()
		if err == nil {
			var lanes []net.Conn
			if lanes, err = e.dialLanes(ctx, to, a, h.lanes); err == nil {
				return append([]net.Conn{c}, lanes...), h, nil
			}
			_ = c.Close()
		}
		errs = append(errs, fmt.Errorf("%v: %w", to, err))
		if ctx.Err() != nil {
			break
		}
	}
	if err := ctx.Err(); err != nil {
		errs = append(errs, err)
	}
	return nil, hello{}, errors.Join(errs...)
}

func (e *endpoint) dialOne(ctx context.Context, to netip.AddrPort, a *address, lane uint8) (net.Conn, hello, error) {
	var d net.Dialer
	d.SetMultipathTCP(false)
	d.KeepAlive = -1 // takeSocket sets it
	c, err := d.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, hello{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	mine := hello{token: a.token, nonce: e.nonce, reads: maxReads, lane: lane, lanes: e.propose(c, lane)}
	var buf [helloSize]byte
	var h hello
	if _, err = c.Write(mine.append(buf[:0])); err == nil {
		if _, err = io.ReadFull(c, buf[:]); err == nil {
			err = h.parse(buf[:])
		}
	}
	if err == nil && (h.token != e.token || h.nonce != a.nonce || h.lane != lane || h.lanes > mine.lanes) {
		err = errStranger
	}
	if err == nil && !stop() {
		err = ctx.Err() // the deadline was set already
	}
	if err != nil {
		_ = c.Close()
		return nil, hello{}, err
	}
	return c, h, nil
}

// quiet reports whether the other end of c still waits for our hello: it neither
// hung up nor spoke out of turn.
func quiet(c net.Conn) bool {
	rc, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return false
	}
	var rerr error
	if err := rc.Control(func(s uintptr) {
		var b [1]byte
		_, _, rerr = unix.Recvfrom(int(s), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	}); err != nil {
		return false
	}
	return rerr == unix.EAGAIN
}
