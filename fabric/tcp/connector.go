//go:build linux || darwin || freebsd

package tcp

import (
	"context"
	"crypto/rand"
	"encoding/binary"
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

func (co *connector) init(l *link, peerTimeout time.Duration) {
	co.l, co.peerTimeout, co.arrivals = l, peerTimeout, make(chan arrival, 1+maxLanes)
	if co.peerTimeout <= 0 {
		co.peerTimeout = fabric.DefaultPeerTimeout
	}
	var r [tokenSize + 8]byte
	_, _ = rand.Read(r[:]) // never fails
	copy(co.token[:], r[:])
	co.nonce = binary.LittleEndian.Uint64(r[tokenSize:])
}

// park keeps a connection for await. A newer one replaces an older one, which the peer has
// given up before it dialled again.
func (co *connector) park(in arrival) bool {
	if in.h.lane == 0 {
		co.dropParked()
	}
	if len(co.arrivals) == cap(co.arrivals) {
		return false
	}
	co.arrivals <- in // has room: only offer sends, under endpoint.mu
	return true
}

// dropParked closes parked connections that are not needed.
func (co *connector) dropParked() {
	for {
		select {
		case in := <-co.arrivals:
			_ = in.conn.Close()
		default:
			return
		}
	}
}

// Pauses between two attempts to dial.
const minRedial, maxRedial = time.Millisecond, 100 * time.Millisecond

// Times in which a host must answer the first packet, in the first attempt and at most. The
// system repeats the packet after 1 s, 3 s, 7 s and so on; a new attempt comes sooner than its
// later ones, and finds another way if there is one.
const minConnect, maxConnect = time.Second, 8 * time.Second

// dial connects to the peer, at the first of its hosts that answers as the peer, and makes
// the lanes that both sides agree on. A connection that is refused or lost meanwhile is
// made again until ctx ends, because the peer may have too many strangers. The peer is gone
// if nothing has listened there for PeerTimeout.
func (co *connector) dial(ctx context.Context, a *address) joint {
	var answered time.Time // when something listened last
	for pause, attempt := minRedial, minConnect; ; pause, attempt = min(2*pause, maxRedial), min(2*attempt, maxConnect) {
		j := co.dialHosts(ctx, a, hello{attempt: co.l.cfg.attempt()}, attempt)
		err := j.err
		lost := anyOf(err, errNetworkChanged, io.EOF, io.ErrUnexpectedEOF, unix.ECONNRESET, unix.ECONNABORTED, unix.EPIPE, os.ErrDeadlineExceeded, context.DeadlineExceeded)
		if err == nil || !lost && !errors.Is(err, unix.ECONNREFUSED) {
			return j
		}
		if lost || answered.IsZero() {
			answered = time.Now()
		} else if time.Since(answered) > co.peerTimeout {
			return joint{err: fmt.Errorf("%w: %w", fabric.ErrPeerGone, err)}
		}
		select {
		case <-ctx.Done():
			return joint{err: errors.Join(err, ctx.Err())}
		case <-time.After(pause/2 + mathrand.N(pause)):
		}
	}
}

// errNetworkChanged means that a network of this host has changed during an attempt to connect.
var errNetworkChanged = errors.New("tcp: a network of this host has changed")

// anyOf reports whether err is one of these errors.
func anyOf(err error, these ...error) bool {
	return slices.ContainsFunc(these, func(e error) bool { return errors.Is(err, e) })
}

// dialHosts tries each host once. attempt bounds the time in which it must accept a connection. The
// handshake of the first attempt has no such bound: one that the peer has completed must not be begun
// again. first is the hello of the first connection, as far as its sender chooses.
func (co *connector) dialHosts(ctx context.Context, a *address, first hello, attempt time.Duration) joint {
	var errs []error
	for i, host := range a.hosts {
		// A host that drops packets must not use up the time of the hosts after it.
		hctx, cancel := ctx, context.CancelFunc(func() {})
		if dl, ok := ctx.Deadline(); ok {
			hctx, cancel = context.WithTimeout(ctx, time.Until(dl)/time.Duration(len(a.hosts)-i))
		}
		to := netip.AddrPortFrom(host, a.port)
		if first.attempt > firstAttempt && first.attempt != inquiry {
			first.attempt = max(co.attempt.Load(), firstAttempt) + 1
			co.attempt.Store(first.attempt)
		}
		c, ans, err := co.dialOne(hctx, to, a, first, attempt)
		cancel()
		if err == nil && ans.end != 0 {
			_ = c.conn.Close()
			return joint{err: &endedError{ans.end, ans.tally}}
		}
		if err == nil {
			var lanes []agreed
			if lanes, err = co.dialLanes(ctx, to, a, ans, attempt); err == nil {
				return joint{conns: append([]agreed{c}, lanes...), reads: ans.reads, attempt: ans.attempt, theirs: ans.tally}
			}
			_ = c.conn.Close()
		}
		errs = append(errs, fmt.Errorf("%v: %w", to, err))
		if ctx.Err() != nil || errors.Is(err, errNetworkChanged) { // the hosts are tried again, in this order
			break
		}
	}
	if err := ctx.Err(); err != nil {
		errs = append(errs, err)
	}
	return joint{err: errors.Join(errs...)}
}

// dialOne makes one connection: the lane in mine, by default the first connection.
func (co *connector) dialOne(ctx context.Context, to netip.AddrPort, a *address, mine hello, attempt time.Duration) (agreed, answer, error) {
	d := net.Dialer{Timeout: attempt}
	d.SetMultipathTCP(false)
	d.KeepAlive = -1 // takeSocket sets it
	c, err := co.connect(ctx, &d, to, mine.attempt <= firstAttempt)
	if err != nil {
		return agreed{}, answer{}, err
	}
	if mine.attempt > firstAttempt {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 2*attempt) // two round trips instead of one
		defer cancel()
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if mine.lane == 0 {
		mine.lanes, mine.crypt = co.propose(c)
	}
	mine.to, mine.from, mine.reads, mine.challenge = a.nonce, co.nonce, maxReads, newChallenge()
	var t transcript
	ans, err := co.introduce(c, &t, a, &mine)
	if err == nil && !stop() {
		err = ctx.Err() // the deadline was set from ctx
	}
	var k keys
	if err == nil {
		k, err = t.keys(a.token, co.token, ans.crypt, true)
	}
	if err != nil {
		_ = c.Close()
		return agreed{}, answer{}, err
	}
	return agreed{c, k}, ans, nil
}

// connect makes a connection. If it is of the first attempt, whose handshake is not repeated, it alone may
// be abandoned.
func (co *connector) connect(ctx context.Context, d *net.Dialer, to netip.AddrPort, first bool) (c net.Conn, err error) {
	if !first {
		return d.DialContext(ctx, "tcp", to.String())
	}
	err = co.untilChanged(ctx, func(ctx context.Context) (err error) {
		c, err = d.DialContext(ctx, "tcp", to.String())
		return err
	})
	return c, err
}

// untilChanged calls dial, whose context connector.abandon ends: then it returns errNetworkChanged.
func (co *connector) untilChanged(ctx context.Context, dial func(context.Context) error) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	co.abandon.Store(&cancel)
	defer co.abandon.Store(nil)
	err := dial(inner)
	if err != nil && inner.Err() != nil && ctx.Err() == nil {
		return errNetworkChanged
	}
	return err
}

// introduce executes the handshake of the dialling side.
func (co *connector) introduce(c net.Conn, t *transcript, a *address, mine *hello) (ans answer, err error) {
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
	if !t.signed(&co.token, purposeAnswer) {
		return ans, errNotPeer
	}
	return ans, ans.parse(b, mine)
}

// quiet reports whether the other end of c still waits for our hello: it has neither hung
// up nor sent anything.
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

// propose returns the number of lanes and the Crypt that this side proposes on a
// connection.
func (co *connector) propose(c net.Conn) (lanes uint8, crypt Crypt) {
	var p path
	if rc, err := c.(*net.TCPConn).SyscallConn(); err == nil {
		_ = rc.Control(func(s uintptr) { p = co.l.cfg.pathOf(int(s), c) })
	}
	return uint8(co.l.cfg.lanes(p.class)), max(co.l.cfg.Crypt.of(p.class), co.least)
}

// dialLanes makes the lanes that the peer agreed to, one after the other. The peer has
// answered, so each takes a few round trips.
func (co *connector) dialLanes(ctx context.Context, to netip.AddrPort, a *address, first answer, attempt time.Duration) ([]agreed, error) {
	var lanes []agreed
	for i := uint8(1); i <= first.lanes; i++ {
		c, ans, err := co.dialOne(ctx, to, a, hello{lane: i, lanes: first.lanes, crypt: first.crypt, attempt: first.attempt}, attempt)
		if err == nil && ans.crypt != first.crypt {
			_ = c.conn.Close()
			err = errNotPeer
		}
		if err != nil {
			closeConns(lanes)
			return nil, err
		}
		lanes = append(lanes, c)
	}
	return lanes, nil
}

// await waits for the peer to dial the first connection and all agreed lanes. An endpoint
// that knows the token but is not the expected peer is rejected, and the wait continues. A
// peer that dials its first connection again has given up its earlier connections. says holds the
// tally of this side; its attempt is 0 if this side does not resume.
func (co *connector) await(ctx context.Context, a *address, says answer) (j joint) {
	var conns []agreed // the first connection and its lanes, in order
	var first answer
	for conns == nil || len(conns) <= int(first.lanes) {
		select {
		case <-ctx.Done():
			closeConns(conns)
			if why := co.l.noAccept.Load(); why != nil {
				return joint{err: errors.Join(ctx.Err(), *why)}
			}
			return joint{err: ctx.Err()}
		case in := <-co.arrivals:
			lane := in.h.lane
			if in.h.from != a.nonce || lane != 0 && (int(lane) != len(conns) || in.h.crypt != first.crypt || in.h.attempt != first.attempt) || !quiet(in.conn) {
				_ = in.conn.Close()
				continue
			}
			mine := answer{reads: maxReads, lanes: in.h.lanes, crypt: in.h.crypt, attempt: in.h.attempt}
			if lane == 0 {
				closeConns(conns)
				conns = nil
				if mine.tally = says.tally; says.attempt == 0 {
					mine.attempt = 0
				}
				co.attempt.Store(mine.attempt)
				lanes, crypt := co.propose(in.conn)
				mine.lanes, mine.crypt = min(mine.lanes, lanes), max(mine.crypt, crypt)
			}
			c, err := in.agree(co, a, &mine)
			if err != nil {
				_ = in.conn.Close() // the peer has given up; it may dial again
				continue
			}
			if lane == 0 {
				first = mine
				j.reads, j.attempt, j.theirs = in.h.reads, mine.attempt, in.h.tally
			}
			conns = append(conns, c)
		}
	}
	j.conns = conns
	return j
}

// agree completes the handshake of the side that was dialled.
func (in *arrival) agree(co *connector, a *address, mine *answer) (agreed, error) {
	t := &in.said
	from := t.n
	t.add(mine.append(nil))
	t.sign(&a.token, purposeAnswer)
	// A few bytes on a new socket do not block.
	_ = in.conn.SetDeadline(time.Now().Add(co.l.cfg.HandshakeTimeout))
	if _, err := in.conn.Write(t.said[from:t.n]); err != nil {
		return agreed{}, err
	}
	k, err := t.keys(co.token, a.token, mine.crypt, false)
	return agreed{in.conn, k}, err
}

// takeSockets takes the descriptors out of conns, which it closes; if err is not nil it
// only closes them. The path is that of the first.
func (co *connector) takeSockets(conns []agreed, err error) (socks []socket, p path, _ error) {
	if err != nil {
		return nil, p, err
	}
	defer closeConns(conns)
	for _, c := range conns {
		s, way, err := co.takeSocket(c.conn)
		if err == nil {
			s.sec, err = newRecords(&c.keys)
			socks = append(socks, s)
		}
		if err != nil {
			closeAll(socks)
			return nil, p, err
		}
		if len(socks) == 1 {
			p = way
			p.crypt = c.keys.crypt
		}
	}
	return socks, p, nil
}

func closeConns(conns []agreed) {
	for _, c := range conns {
		_ = c.conn.Close()
	}
}

func closeAll(socks []socket) {
	for i := range socks {
		socks[i].close()
	}
}
