//go:build linux

package tcp

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

func (l *link) where() string { return l.ln.Addr().String() }

func dialLink(t *testing.T, l *link) net.Conn {
	c, err := net.DialTimeout("tcp", l.where(), patience)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
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

// Strangers that connect and say nothing, or nonsense, or show a wrong token,
// lose their connection, and a Connect that waits does not notice.
func TestStrangers(t *testing.T) {
	a := newHost(t, Config{HandshakeTimeout: 200 * time.Millisecond}, fabric.EndpointOptions{ID: 1}, 4096)
	b := newHost(t, Config{HandshakeTimeout: 200 * time.Millisecond}, fabric.EndpointOptions{ID: 2}, 4096)
	if a.ep.nonce < b.ep.nonce {
		a, b = b, a // a waits, b dials
	}
	ctx := testutil.Context(t, patience)
	errs := make(chan error, 1)
	peer := b.ep.Address()
	go func() { errs <- a.ep.Connect(ctx, peer) }()

	silent := make([]net.Conn, 2*maxPending)
	for i := range silent {
		silent[i] = dialLink(t, a.l)
	}
	wantHangUp(t, silent[0]) // gave way to later ones, long before its time

	for _, say := range [][]byte{
		[]byte("GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n"),
		(&hello{token: token{1}, nonce: b.ep.nonce}).append(nil),                            // wrong token
		(&hello{token: a.ep.token, nonce: 12345}).append(nil),                               // not whom a waits for
		(&hello{token: a.ep.token, nonce: b.ep.nonce, reads: maxPeerReads + 1}).append(nil), // asks too much
		append([]byte("rmaT\x02"), (&hello{token: a.ep.token}).append(nil)[5:]...),          // other version
		append((&hello{token: a.ep.token, nonce: b.ep.nonce}).append(nil), "too early"...),  // speaks out of turn
	} {
		c := dialLink(t, a.l)
		_, err := c.Write(say)
		require.NoError(t, err)
		wantHangUp(t, c)
	}
	select {
	case err := <-errs:
		t.Fatalf("Connect returned: %v", err)
	default:
	}
	require.NoError(t, b.ep.Connect(ctx, a.ep.Address()))
	require.NoError(t, <-errs)
	wantHangUp(t, silent[len(silent)-1]) // out of time
}

// Who answers without knowing our token is not the peer; the next host is tried.
func TestDialerChecksWhoAnswers(t *testing.T) {
	for _, tc := range []struct {
		name   string
		answer func(h hello, e *endpoint, peer *address) []byte
	}{
		{"wrong token", func(_ hello, _ *endpoint, p *address) []byte {
			return (&hello{token: token{1}, nonce: p.nonce}).append(nil)
		}},
		{"wrong nonce", func(_ hello, e *endpoint, p *address) []byte {
			return (&hello{token: e.token, nonce: p.nonce + 1}).append(nil)
		}},
		{"hangs up", func(hello, *endpoint, *address) []byte { return []byte("rm") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer ln.Close()
			h := newHost(t, Config{}, fabric.EndpointOptions{}, 4096)
			h.ep.nonce = 1
			peer := &address{token: token{9}, nonce: 2, port: uint16(ln.Addr().(*net.TCPAddr).Port), hosts: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}
			go func() {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				var buf [helloSize]byte
				var got hello
				if _, err := io.ReadFull(c, buf[:]); err == nil && got.parse(buf[:]) == nil {
					_, _ = c.Write(tc.answer(got, h.ep, peer))
				}
			}()
			err = h.ep.Connect(testutil.Context(t, patience), peer.append(nil))
			require.Error(t, err)
			n, err := h.ep.Post([]fabric.WR{{Op: fabric.OpWrite}})
			require.Zero(t, n)
			require.ErrorIs(t, err, fabric.ErrNotConnected)
		})
	}
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
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
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
		testutil.Eventually(t, patience, func() bool { return a.ep.state.Load() == epConnecting }, "connecting")
		require.NoError(t, a.ep.Close())
		testutil.Within(t, patience, "Connect", func() { require.ErrorIs(t, <-errs, fabric.ErrClosed) })
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
