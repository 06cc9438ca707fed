//go:build linux

package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

func (l *link) where() string { return l.lns[0].Addr().String() }

func dialLink(t *testing.T, l *link) net.Conn {
	c, err := net.DialTimeout("tcp", l.where(), testutil.Limit)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(testutil.Limit)))
	return c
}

// wantHangUp waits for the other side to close c without a word.
func wantHangUp(t *testing.T, c net.Conn) {
	t.Helper()
	n, err := c.Read(make([]byte, 1))
	require.Zero(t, n)
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "still open")
}

// openHandshake says hello, what a peer that knows k says to the challenge, and more behind
// it. It returns the handshake so far.
func openHandshake(t *testing.T, c net.Conn, h hello, k token, more string) *transcript {
	var s transcript
	_, err := c.Write(s.add(h.append(nil)))
	require.NoError(t, err)
	_, err = io.ReadFull(c, s.next(challengeSize))
	require.NoError(t, err)
	_, err = c.Write(append(s.sign(&k, purposeProof), more...))
	require.NoError(t, err)
	return &s
}

// Strangers that connect and say nothing, or nonsense, or do not know the token,
// lose their connection, and a Connect that waits does not notice.
func TestStrangers(t *testing.T) {
	a := newHost(t, Config{HandshakeTimeout: 200 * time.Millisecond}, fabric.EndpointOptions{ID: 1}, 4096)
	b := newHost(t, Config{HandshakeTimeout: 200 * time.Millisecond}, fabric.EndpointOptions{ID: 2}, 4096)
	if a.ep.nonce < b.ep.nonce {
		a, b = b, a // a waits, b dials
	}
	ctx := testutil.Context(t, testutil.Limit)
	errs := make(chan error, 1)
	peer := b.ep.Address()
	go func() { errs <- a.ep.Connect(ctx, peer) }()

	silent := dialLink(t, a.l)
	good := hello{to: a.ep.nonce, from: b.ep.nonce, crypt: CryptOff}
	for _, say := range [][]byte{
		[]byte("GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n"),
		(&hello{to: a.ep.nonce, from: b.ep.nonce, reads: maxPeerReads + 1, crypt: CryptOff}).append(nil), // asks too much
		append([]byte("rmaT\x02"), good.append(nil)[5:]...),                                              // other version
	} {
		c := dialLink(t, a.l)
		_, err := c.Write(say)
		require.NoError(t, err)
		wantHangUp(t, c)
	}
	for what, c := range map[string]struct {
		h    hello
		k    token
		more string
	}{
		"wrong token":            {h: good, k: token{1}},
		"of its own endpoint":    {h: good, k: b.ep.token},
		"no such endpoint":       {h: hello{to: 99, from: b.ep.nonce, crypt: CryptOff}, k: a.ep.token},
		"not whom a waits for":   {h: hello{to: a.ep.nonce, from: 12345, crypt: CryptOff}, k: a.ep.token},
		"speaks out of turn":     {h: good, k: a.ep.token, more: "too early"},
		"a lane without a first": {h: hello{to: a.ep.nonce, from: b.ep.nonce, lane: 1, lanes: 1, crypt: CryptOff}, k: a.ep.token},
	} {
		conn := dialLink(t, a.l)
		openHandshake(t, conn, c.h, c.k, c.more)
		wantHangUp(t, conn)
		t.Log(what)
	}
	select {
	case err := <-errs:
		t.Fatalf("Connect returned: %v", err)
	default:
	}
	require.NoError(t, b.ep.Connect(ctx, a.ep.Address()))
	require.NoError(t, <-errs)
	wantHangUp(t, silent) // out of time
}

// A handshake that was heard is of no use to who plays it again: the challenge is
// another one. What is heard does not hold a token.
func TestHandshakeReplayed(t *testing.T) {
	a := newHost(t, Config{}, fabric.EndpointOptions{}, 4096)
	h := hello{to: a.ep.nonce, from: 7, crypt: CryptOff}
	c := dialLink(t, a.l)
	s := openHandshake(t, c, h, a.ep.token, "")
	testutil.Eventually(t, testutil.Limit, func() bool { return len(a.ep.arrivals) == 1 }, "offered")
	require.NotContains(t, string(s.said[:]), string(a.ep.token[:]))

	c = dialLink(t, a.l)
	_, err := c.Write(s.said[:helloSize])
	require.NoError(t, err)
	_, err = io.ReadFull(c, make([]byte, challengeSize))
	require.NoError(t, err)
	_, err = c.Write(s.said[helloSize+challengeSize : s.n])
	require.NoError(t, err)
	wantHangUp(t, c)
	require.Len(t, a.ep.arrivals, 1, "the first is still there")
}

// Who answers without knowing our token is not the peer.
func TestDialerChecksWhoAnswers(t *testing.T) {
	full := answer{crypt: CryptFull}
	for _, tc := range []struct {
		name  string
		wants Crypt
		say   func(s *transcript, e *endpoint)
		err   error
	}{
		{"wrong token", CryptOff, func(s *transcript, _ *endpoint) { s.add(full.append(nil)); s.sign(&token{1}, purposeAnswer) }, errNotPeer},
		{"token of the other", CryptOff, func(s *transcript, _ *endpoint) { s.add(full.append(nil)); s.sign(&token{9}, purposeAnswer) }, errNotPeer},
		{"reflects the proof", CryptOff, func(s *transcript, e *endpoint) { s.add(full.append(nil)); s.sign(&e.token, purposeProof) }, errNotPeer},
		{"less protection", CryptAuth, func(s *transcript, e *endpoint) {
			s.add((&answer{crypt: CryptOff}).append(nil))
			s.sign(&e.token, purposeAnswer)
		}, errNotHello},
		{"hangs up", CryptOff, func(s *transcript, _ *endpoint) { s.add([]byte("rm")) }, context.DeadlineExceeded},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			h := newHost(t, Config{Crypt: tc.wants}, fabric.EndpointOptions{}, 4096)
			h.ep.nonce = 1
			peer := &address{token: token{9}, nonce: 2, port: uint16(ln.Addr().(*net.TCPAddr).Port), hosts: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}
			done := make(chan struct{})
			defer func() { _ = ln.Close(); <-done }()
			go func() {
				defer close(done)
				for {
					c, err := ln.Accept()
					if err != nil {
						return
					}
					var s transcript
					if _, err := io.ReadFull(c, s.next(helloSize)); err == nil {
						_, _ = c.Write(s.next(challengeSize))
						if _, err := io.ReadFull(c, s.next(proofSize)); err == nil {
							from := s.n
							tc.say(&s, h.ep)
							_, _ = c.Write(s.said[from:s.n])
						}
					}
					_ = c.Close()
				}
			}()
			ctx := testutil.Context(t, testutil.Limit)
			if errors.Is(tc.err, context.DeadlineExceeded) {
				ctx = testutil.Context(t, 100*time.Millisecond) // deadline: it has to end
			}
			require.ErrorIs(t, h.ep.Connect(ctx, peer.append(nil)), tc.err)
			n, err := h.ep.Post([]fabric.WR{{Op: fabric.OpWrite}})
			require.Zero(t, n)
			require.ErrorIs(t, err, fabric.ErrNotConnected)
		})
	}
}

// Nobody listens where the peer was: it is gone, before the context ends.
func TestDialNobody(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	h := newHost(t, Config{}, fabric.EndpointOptions{PeerTimeout: 50 * time.Millisecond}, 4096)
	h.ep.nonce = 1
	peer := &address{nonce: 2, port: uint16(ln.Addr().(*net.TCPAddr).Port), hosts: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}
	require.ErrorIs(t, h.ep.Connect(testutil.Context(t, testutil.Limit), peer.append(nil)), fabric.ErrPeerGone)
}

// A host that answers no packet is tried again, long before the system gives up, and the hosts
// after it have their turn.
func TestConnectAttemptsAgain(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 9}}))
	require.NoError(t, unix.Listen(fd, 0))
	at, err := unix.Getsockname(fd)
	require.NoError(t, err)
	to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 9}), uint16(at.(*unix.SockaddrInet4).Port))
	full, err := net.Dial("tcp", to.String()) // its queue has room for one: it ignores others
	require.NoError(t, err)
	t.Cleanup(func() { _ = full.Close() })

	h := newHost(t, Config{}, fabric.EndpointOptions{}, 4096)
	h.ep.nonce = 1
	peer := &address{nonce: 2, port: to.Port(), hosts: []netip.Addr{to.Addr()}}
	ctx, cancel := context.WithCancel(testutil.Context(t, testutil.Limit))
	errs := make(chan error, 1)
	go func() { errs <- h.ep.Connect(ctx, peer.append(nil)) }()
	attempts := map[string]bool{}
	testutil.Eventually(t, testutil.Limit, func() bool {
		require.Empty(t, errs, "Connect goes on")
		list, err := os.ReadFile("/proc/net/tcp")
		require.NoError(t, err)
		for line := range strings.Lines(string(list)) {
			const synSent = "02"
			if f := strings.Fields(line); len(f) > 3 && f[3] == synSent && f[2] == fmt.Sprintf("090000%02X:%04X", 127, to.Port()) {
				attempts[f[1]] = true
			}
		}
		return len(attempts) > 2
	}, "it tries again, from other ports")
	cancel()
	require.ErrorIs(t, <-errs, context.Canceled)
}

func TestConnectTriesEveryHost(t *testing.T) {
	dead := netip.MustParseAddr("127.9.9.9") // nothing listens there
	live := netip.MustParseAddr("127.0.0.1")
	cfg := Config{Advertise: []netip.Addr{dead, live}}
	a, b := newHost(t, cfg, fabric.EndpointOptions{}, 4096), newHost(t, cfg, fabric.EndpointOptions{}, 4096)
	join(t, a, b)
}

// A peer that gave up and came again is connected with its second attempt.
func TestConnectAgain(t *testing.T) {
	a, b := newHost(t, Config{}, fabric.EndpointOptions{}, 4096), newHost(t, Config{}, fabric.EndpointOptions{}, 4096)
	if a.ep.nonce < b.ep.nonce {
		a, b = b, a // b dials
	}
	for range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond) // deadline: it has to end
		require.ErrorIs(t, b.ep.Connect(ctx, a.ep.Address()), context.DeadlineExceeded)
		cancel()
	}
	join(t, a, b)
	n, err := a.ep.Post([]fabric.WR{a.write(0, 8, b.reg.Key(), fabric.FlagSignaled)})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	until(t, "completion", func() bool { return len(a.got) == 1 }, a, b)
	require.Equal(t, fabric.StatusOK, a.got[0].Status)
}

func TestCloseEndsConnect(t *testing.T) {
	for _, dials := range []bool{true, false} {
		a, b := newHost(t, Config{}, fabric.EndpointOptions{}, 4096), newHost(t, Config{}, fabric.EndpointOptions{}, 4096)
		if dials != (a.ep.nonce < b.ep.nonce) {
			a, b = b, a
		}
		errs := make(chan error, 1)
		go func() { errs <- a.ep.Connect(context.Background(), b.ep.Address()) }()
		testutil.Eventually(t, testutil.Limit, func() bool { return a.ep.state.Load() == epConnecting }, "connecting")
		require.NoError(t, a.ep.Close())
		testutil.Within(t, testutil.Limit, "Connect", func() { require.ErrorIs(t, <-errs, fabric.ErrClosed) })
	}
}

func TestConfig(t *testing.T) {
	for name, c := range map[string]Config{
		"negative buffer":   {SendBuffer: -1},
		"negative time":     {HandshakeTimeout: -1},
		"nothing to dial":   {Advertise: []netip.Addr{netip.MustParseAddr("0.0.0.0")}},
		"multicast":         {Advertise: []netip.Addr{netip.MustParseAddr("224.0.0.1")}},
		"too many lanes":    {Lanes: maxLanes + 1},
		"negative size":     {LaneMin: -1},
		"too many":          {Advertise: make([]netip.Addr, maxAddrs+1)},
		"not of this host":  {Bind: netip.MustParseAddr("192.0.2.1")},
		"invalid advertise": {Advertise: make([]netip.Addr, 1)},
	} {
		_, err := Open(&c)
		require.Error(t, err, name)
	}
	for _, bind := range []string{"0.0.0.0", "127.0.0.2"} {
		cfg := Config{Bind: netip.MustParseAddr(bind)}
		a, b := newHost(t, cfg, fabric.EndpointOptions{}, 4096), newHost(t, Config{}, fabric.EndpointOptions{}, 4096)
		for _, h := range a.l.cfg.Advertise {
			require.False(t, h.IsUnspecified())
		}
		join(t, a, b)
	}
}
