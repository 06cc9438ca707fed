//go:build linux || darwin || freebsd

package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
)

var (
	errSelf      = fmt.Errorf("tcp: connect: %w: an endpoint cannot be connected to itself", fabric.ErrBadAddress)
	errConnected = errors.New("tcp: connect: endpoint was connected before: make a new one")
)

// incoming is a connection whose other side has proved that it knows this
// endpoint's token.
type incoming struct {
	conn net.Conn
	h    hello
	said transcript
}

// agreed is one connection that both sides have agreed on.
type agreed struct {
	conn net.Conn
	keys keys
}

// offer parks a connection until Connect fetches it. A newer one takes the place
// of an older: the peer has given up on that and tries again.
func (e *endpoint) offer(in incoming) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.state.Load(); s != epIdle && s != epConnecting {
		return false
	}
	if in.h.lane == 0 {
		e.dropOffers()
	}
	if len(e.incoming) == cap(e.incoming) {
		return false
	}
	e.incoming <- in // has room: only offer sends, under mu
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
	var conns []agreed
	var reads uint32
	var err error
	if e.nonce < a.nonce {
		conns, reads, err = e.dial(ctx, &a)
	} else {
		conns, reads, err = e.await(ctx, &a)
	}
	socks, p, err := e.takeSockets(conns, err)
	return e.endConnect(socks, p, reads, shortage(err))
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
func (e *endpoint) endConnect(socks []socket, p path, reads uint32, err error) error {
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
	e.path, e.chunk = p, wholeSegments(maxAccess, p.mss)
	e.bulk.init(socks[1:], e.l.cfg.LaneMin)
	e.publish(socks[0], reads)
	e.dropOffers()
	return nil
}

// publish gives the endpoint its socket and hands it to the owner. mu is held.
func (e *endpoint) publish(s socket, peerReads uint32) {
	e.sock = s
	e.rq.init(peerReads)
	l := e.l
	l.mu.Lock()
	delete(l.byNonce, e.nonce)
	l.joined = append(l.joined, e)
	e.state.Store(epUp)
	l.wake() // before fresh: adopt takes the wake-up back, and would miss a later one
	l.fresh.Add(1)
	l.mu.Unlock()
	select {
	case l.met <- struct{}{}:
	default:
	}
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

// Pauses between two attempts to dial.
const minRedial, maxRedial = time.Millisecond, 100 * time.Millisecond

// dial connects to the peer, by whichever of its hosts answers as the peer, and makes
// the lanes that both sides want. A connection that is turned away or lost meanwhile
// is made anew until ctx ends: the peer may have too many strangers at its door. It
// is gone if nobody has listened there for PeerTimeout.
func (e *endpoint) dial(ctx context.Context, a *address) ([]agreed, uint32, error) {
	var heard time.Time // when something listened last
	for pause := minRedial; ; pause = min(2*pause, maxRedial) {
		conns, reads, err := e.dialHosts(ctx, a)
		lost := anyOf(err, io.EOF, io.ErrUnexpectedEOF, unix.ECONNRESET, unix.ECONNABORTED, unix.EPIPE, os.ErrDeadlineExceeded, context.DeadlineExceeded)
		if err == nil || !lost && !errors.Is(err, unix.ECONNREFUSED) {
			return conns, reads, err
		}
		if lost || heard.IsZero() {
			heard = time.Now()
		} else if time.Since(heard) > e.peerTimeout {
			return nil, 0, fmt.Errorf("%w: %w", fabric.ErrPeerGone, err)
		}
		select {
		case <-ctx.Done():
			return nil, 0, errors.Join(err, ctx.Err())
		case <-time.After(pause/2 + mathrand.N(pause)):
		}
	}
}

// anyOf reports whether err is one of these.
func anyOf(err error, these ...error) bool {
	return slices.ContainsFunc(these, func(e error) bool { return errors.Is(err, e) })
}

// dialHosts tries each host once.
func (e *endpoint) dialHosts(ctx context.Context, a *address) ([]agreed, uint32, error) {
	var errs []error
	for i, host := range a.hosts {
		// A host that drops packets must not use up the time of those behind it.
		hctx, cancel := ctx, context.CancelFunc(func() {})
		if dl, ok := ctx.Deadline(); ok {
			hctx, cancel = context.WithTimeout(ctx, time.Until(dl)/time.Duration(len(a.hosts)-i))
		}
		to := netip.AddrPortFrom(host, a.port)
		c, ans, err := e.dialOne(hctx, to, a, hello{})
		cancel()
		if err == nil {
			var lanes []agreed
			if lanes, err = e.dialLanes(ctx, to, a, ans); err == nil {
				return append([]agreed{c}, lanes...), ans.reads, nil
			}
			_ = c.conn.Close()
		}
		errs = append(errs, fmt.Errorf("%v: %w", to, err))
		if ctx.Err() != nil {
			break
		}
	}
	if err := ctx.Err(); err != nil {
		errs = append(errs, err)
	}
	return nil, 0, errors.Join(errs...)
}

// dialOne makes one connection: the first if mine says nothing, else the lane that it
// says.
func (e *endpoint) dialOne(ctx context.Context, to netip.AddrPort, a *address, mine hello) (agreed, answer, error) {
	var d net.Dialer
	d.SetMultipathTCP(false)
	d.KeepAlive = -1 // takeSocket sets it
	c, err := d.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return agreed{}, answer{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if mine.lane == 0 {
		mine.lanes, mine.crypt = e.propose(c)
	}
	mine.to, mine.from, mine.reads, mine.challenge = a.nonce, e.nonce, maxReads, newChallenge()
	var t transcript
	ans, err := e.introduce(c, &t, a, &mine)
	if err == nil && !stop() {
		err = ctx.Err() // the deadline was set already
	}
	var k keys
	if err == nil {
		k, err = t.keys(a.token, e.token, ans.crypt, true)
	}
	if err != nil {
		_ = c.Close()
		return agreed{}, answer{}, err
	}
	return agreed{c, k}, ans, nil
}

// introduce is the dialling side of the handshake.
func (e *endpoint) introduce(c net.Conn, t *transcript, a *address, mine *hello) (ans answer, err error) {
	if _, err = c.Write(t.add(mine.append(nil))); err != nil {
		return ans, err
	}
	if _, err = io.ReadFull(c, t.next(challengeSize)); err != nil {
		return ans, err
	}
	if _, err = c.Write(t.sign(&a.token, purposeProof)); err != nil {
		return ans, err
	}
	b := t.next(answerSize)
	if _, err = io.ReadFull(c, b); err != nil {
		return ans, err
	}
	if !t.signed(&e.token, purposeAnswer) {
		return ans, errStranger
	}
	return ans, ans.parse(b, mine)
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
