//go:build linux

package tcp

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

// A peer that is stopped, with the sockets full, for much longer than PeerTimeout
// is not gone: when it continues, everything goes on and nothing is lost.
func TestStoppedPeerIsNotGone(t *testing.T) {
	if testing.Short() {
		t.Skip("stops a process for some seconds")
	}
	t.Parallel()
	const timeout, count = 500 * time.Millisecond, 16
	h, p, key := spawn(t, modeSink, fabric.EndpointOptions{ID: 3, PeerTimeout: timeout})
	h.poll()
	p.Stop(t)
	mem := h.reg.Bytes()
	testutil.Fill(mem, 5, 0)
	half := len(mem) / 2
	for i := range count {
		w := h.write(0, half, key, fabric.FlagSignaled)
		if i%2 == 1 { // below and above what goes by a lane
			w = h.write(i*64<<10, 64<<10, key, fabric.FlagSignaled)
		}
		h.post(w)
	}
	read := h.write(half, half, key, fabric.FlagSignaled|fabric.FlagFence)
	read.Op, read.RemoteAddr = fabric.OpRead, key.Addr
	h.post(read)
	for end := time.Now().Add(6 * timeout); time.Now().Before(end); { // deadline: nothing may happen meanwhile
		h.poll()
		require.NoError(t, h.ep.Err())
	}
	require.Less(t, len(h.got), count)
	p.Continue()
	until(t, "completions", func() bool { return len(h.got) == count+1 }, h)
	for _, c := range h.got {
		require.Equal(t, fabric.StatusOK, c.Status)
	}
	require.NoError(t, testutil.Verify(mem[half:], 5, 0))
	require.NoError(t, h.ep.Err())
}

// One acknowledgement that checks see at different times, or two that follow each other closely, do not
// make silence begin again; a later one does.
func TestAcknowledgementsApart(t *testing.T) {
	t.Parallel()
	var h silence
	start := time.Now()
	see := func(early, late time.Duration) bool { return h.another(start.Add(early), start.Add(late)) }
	require.True(t, see(0, 0))
	require.False(t, see(ackGrain-1, ackGrain-1), "just behind it")
	require.False(t, see(ackGrain+4*time.Millisecond, ackGrain+4*time.Millisecond), "that one, later by a tick of the clock")
	require.True(t, see(10*ackGrain, 20*ackGrain), "by a check that was kept waiting")
	require.False(t, see(20*ackGrain, 20*ackGrain), "the same")
	require.True(t, see(22*ackGrain, 22*ackGrain))
	n := 0
	for at := 22 * ackGrain; at < 42*ackGrain; at += ackGrain / 2 {
		if see(at, at) {
			n++
		}
	}
	require.GreaterOrEqual(t, n, 5, "of a stream of acknowledgements")
}

// A network that carries nothing any more is noticed within PeerTimeout and half a
// second, on both sides, whatever was under way.
func TestWireCut(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for PeerTimeout")
	}
	const timeout, slack = 2 * time.Second, 500 * time.Millisecond
	o := fabric.EndpointOptions{PeerTimeout: timeout}
	addrs := []string{"192.0.2.1", "192.0.2.2"}
	var err error
	for _, c := range []struct {
		name string
		load func(a, b *host)
		poll [2]bool
	}{
		{"idle", func(a, b *host) {}, [2]bool{true, true}},
		{"puts under way", func(a, b *host) { a.post(a.write(0, 8, b.reg.Key(), fabric.FlagSignaled)) }, [2]bool{true, true}},
		{"full sockets", func(a, b *host) {
			for range 16 {
				a.post(a.write(0, 4<<20, b.reg.Key(), fabric.FlagSignaled))
			}
			// The window has been closed for a while.
			for end := time.Now().Add(2 * timeout); time.Now().Before(end); { // deadline: nothing may happen meanwhile
				a.poll()
				require.NoError(t, a.ep.Err())
			}
		}, [2]bool{true, false}},
		{"waiting for payload", func(a, b *host) {
			for range 16 {
				a.post(a.write(0, 4<<20, b.reg.Key(), fabric.FlagSignaled))
				b.post(b.write(0, 4<<20, a.reg.Key(), fabric.FlagSignaled))
			}
			until(t, "both to wait", func() bool { return a.ep.in.held && b.ep.in.held }, a, b)
		}, [2]bool{true, true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			// A wire of its own: one that was cut is not at once what it was.
			hosts, do := [2]*host{}, testutil.TwoHosts(t)
			for i := range hosts {
				h := &host{tb: t}
				do[i](func() {
					var l fabric.Link
					if l, err = Open(&Config{Bind: netip.MustParseAddr(addrs[i])}); err == nil {
						h.l = l.(*link)
					}
				})
				require.NoError(t, err)
				h.reg, err = h.l.Alloc(4<<20, fabric.AccessAll)
				require.NoError(t, err)
				ep, err := h.l.NewEndpoint(o)
				require.NoError(t, err)
				h.ep = ep.(*endpoint)
				hosts[i] = h
				t.Cleanup(func() {
					require.NoError(t, h.reg.Close())
					require.NoError(t, h.l.Close())
				})
			}
			a, b := hosts[0], hosts[1]
			ctx := testutil.Context(t, testutil.Limit)
			errs := make(chan error, 2)
			for i := range hosts {
				peer := hosts[1-i].ep.Address()
				go func() {
					var err error
					do[i](func() { err = hosts[i].ep.Connect(context.WithoutCancel(ctx), peer) })
					errs <- err
				}()
			}
			require.NoError(t, <-errs)
			require.NoError(t, <-errs)
			a.poll()
			if c.poll[1] {
				b.poll()
			}
			c.load(a, b)
			testutil.IP(t, do[1], "link", "set", "wire", "down")
			cut := time.Now()
			// What this process is kept waiting for a processor is not the link's fault.
			late, last, downs := time.Duration(0), cut, [2]time.Duration{}
			until(t, "down on both sides", func() bool {
				late = max(late, time.Since(last))
				last = time.Now()
				for i, h := range hosts {
					if down := h.ep.Err() != nil; down && downs[i] == 0 {
						downs[i] = time.Since(cut)
					}
				}
				if !c.poll[1] && downs[0] != 0 {
					b.poll() // reads what came before, and then the end
				}
				return downs[0] != 0 && downs[1] != 0
			}, hosts[:1+btoi(c.poll[1])]...)
			t.Logf("down after %v and %v, late by %v at most", downs[0], downs[1], late)
			for i, h := range hosts {
				require.ErrorIs(t, h.ep.Err(), fabric.ErrPeerGone)
				if c.poll[i] {
					require.Less(t, downs[i], timeout+slack+4*late)
				}
			}
		})
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
