//go:build linux

package tcp

import (
	"bytes"
	"context"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

// Pairs connect while strangers come to one of their doors as fast as they can: all
// pairs are connected. The flood ends with the test, and after floodMost connections.
func TestConnectDuringFlood(t *testing.T) {
	if testing.Short() {
		t.Skip("opens thousands of connections")
	}
	const pairs, floodMost = 20, 200_000
	door := newHost(t, Config{}, fabric.EndpointOptions{}, 4096)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var came atomic.Int64
	for i := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			held := make([]net.Conn, 256) // say nothing for a while
			defer func() {
				for _, c := range held {
					if c != nil {
						_ = c.Close()
					}
				}
			}()
			for n := i; ctx.Err() == nil && came.Add(1) < floodMost; n++ {
				c, err := net.Dial("tcp", door.l.where())
				if err != nil {
					continue
				}
				_ = c.(*net.TCPConn).SetLinger(0) // no ports in TIME_WAIT
				if old := held[n%len(held)]; old != nil {
					_ = old.Close()
				}
				held[n%len(held)] = c
			}
		}()
	}
	defer func() {
		cancel()
		wg.Wait()
		t.Logf("%d strangers came", came.Load())
	}()
	testutil.Eventually(t, testutil.Limit, func() bool { return came.Load() > 2*maxPending }, "a flood")
	errs := make(chan error, 2*pairs)
	limit := testutil.Context(t, testutil.Limit)
	for range pairs {
		a, err := door.l.NewEndpoint(fabric.EndpointOptions{})
		require.NoError(t, err)
		b := newHost(t, Config{}, fabric.EndpointOptions{}, 4096).ep
		a.(*endpoint).nonce |= 1 << 63 // b dials, through the flood
		door.l.mu.Lock()
		door.l.byNonce[a.(*endpoint).nonce] = a.(*endpoint)
		door.l.mu.Unlock()
		b.nonce &^= 1 << 63
		go func() { errs <- a.Connect(limit, b.Address()) }()
		go func() { errs <- b.Connect(limit, a.Address()) }()
	}
	for range 2 * pairs {
		require.NoError(t, <-errs)
	}
}

// Who has not had its time, and who named an endpoint, keeps its place; one address
// does not take those of others.
func TestStrangersMakeRoom(t *testing.T) {
	t.Parallel()
	var p strangers
	closed := map[int]bool{}
	conn := func(i int, from byte) net.Conn {
		return &fakeConn{addr: net.TCPAddr{IP: net.IPv4(192, 0, 2, from)}, close: func() { closed[i] = true }}
	}
	now := time.Now()
	first := p.add(conn(0, 1), now)
	p.named(first, 7)
	for i := 1; i < maxPendingFrom; i++ {
		require.NotNil(t, p.add(conn(i, 1), now))
	}
	require.Nil(t, p.add(conn(-1, 1), now.Add(minPending-1)), "nobody has had its time")
	require.NotNil(t, p.add(conn(-2, 2), now), "of another address")
	require.Empty(t, closed)
	require.NotNil(t, p.add(conn(-3, 1), now.Add(minPending)))
	require.Equal(t, map[int]bool{1: true}, closed, "the oldest but for the one that named an endpoint")
	for i := len(p.conns); i < maxPending; i++ {
		require.NotNil(t, p.add(conn(i, byte(3+i%200)), now))
	}
	require.Nil(t, p.add(conn(-4, 255), now.Add(minPending-1)))
	require.NotNil(t, p.add(conn(-5, 255), now.Add(minPending)))
	require.Len(t, p.conns, maxPending)
	require.True(t, p.remove(first))
	require.False(t, p.remove(first))
	p.closeAll()
	require.Nil(t, p.add(conn(-6, 1), now))
}

// A peer that names its endpoint again and again does not keep out those of others.
func TestStrangersNamingOneEndpoint(t *testing.T) {
	t.Parallel()
	var p strangers
	closed := map[int]bool{}
	now := time.Now()
	conn := func(i int) net.Conn {
		return &fakeConn{addr: net.TCPAddr{IP: net.IPv4(192, 0, 2, byte(i/maxPendingFrom))}, close: func() { closed[i] = true }}
	}
	for i := range maxPending {
		p.named(p.add(conn(i), now), 7)
	}
	for i := range maxPending - maxNamed {
		require.NotNil(t, p.add(conn(maxPending+i), now.Add(minPending)))
		require.True(t, closed[maxNamed+i])
	}
	require.Len(t, closed, maxPending-maxNamed)
	p.closeAll()
}

type fakeConn struct {
	net.Conn
	addr  net.TCPAddr
	close func()
}

func (c *fakeConn) RemoteAddr() net.Addr { return &c.addr }
func (c *fakeConn) Close() error         { c.close(); return nil }

// spend uses up all descriptors of the process but n.
func spend(tb testing.TB, n int) (giveBack func()) {
	var was unix.Rlimit
	require.NoError(tb, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	f, err := os.Open(os.DevNull)
	require.NoError(tb, err)
	top := uint64(f.Fd())
	require.NoError(tb, f.Close())
	require.NoError(tb, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: top + uint64(n), Max: was.Max}))
	return func() { require.NoError(tb, unix.Setrlimit(unix.RLIMIT_NOFILE, &was)) }
}

// awaitAccepting waits until n goroutines are blocked in Accept. A call of accept reserves a
// descriptor before it looks for a connection, so one that is under way would hold the last.
func awaitAccepting(tb testing.TB, n int) {
	stacks := make([]byte, 1<<20)
	testutil.Eventually(tb, testutil.Limit, func() bool {
		got := 0
		for g := range bytes.SplitSeq(stacks[:runtime.Stack(stacks, true)], []byte("\n\n")) {
			if bytes.Contains(g, []byte("[IO wait")) && bytes.Contains(g, []byte(".Accept(")) {
				got++
			}
		}
		return got == n
	}, "goroutines blocked in Accept")
}

// A shortage of descriptors is named, on the side that has it; when it is over,
// connections are made.
func TestDescriptorsRunOut(t *testing.T) {
	if !testutil.Alone(t) { // a descriptor that an earlier test gives back late would be one too many
		return
	}
	a, b := newHost(t, Config{}, fabric.EndpointOptions{}, 4096), newHost(t, Config{}, fabric.EndpointOptions{}, 4096)
	if a.ep.nonce < b.ep.nonce {
		a, b = b, a // b dials
	}
	awaitAccepting(t, 2)
	giveBack := spend(t, 0)
	defer func() { giveBack() }()
	err := b.ep.Connect(testutil.Context(t, testutil.Limit), a.ep.Address())
	require.ErrorIs(t, err, fabric.ErrResources)
	require.ErrorIs(t, err, unix.EMFILE)
	require.NotErrorIs(t, err, fabric.ErrPeerGone)
	_, err = Open(nil)
	require.ErrorIs(t, err, fabric.ErrResources)
	giveBack()

	// The dialler has one, the side that accepts has none.
	giveBack = spend(t, 1)
	dialled, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 2)
	go func() { errs <- b.ep.Connect(dialled, a.ep.Address()) }()
	testutil.Eventually(t, testutil.Limit, func() bool { return a.l.noAccept.Load() != nil || len(errs) > 0 }, "a shortage")
	require.NotNil(t, a.l.noAccept.Load())
	ctx, end := context.WithTimeout(t.Context(), time.Millisecond) // deadline: it has to end
	defer end()
	err = a.ep.Connect(ctx, b.ep.Address())
	require.ErrorIs(t, err, fabric.ErrResources)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	cancel()
	require.ErrorIs(t, <-errs, context.Canceled)
	giveBack()
	giveBack = func() {}
	join(t, a, b)
}

// Who begins with something else than a hello is closed at once, whatever the time for the
// handshake, and never counts as pending; who has begun a hello is not.
func TestStrangerAtTheDoor(t *testing.T) {
	t.Parallel()
	door := newHost(t, Config{HandshakeTimeout: time.Hour}, fabric.EndpointOptions{}, 4096)
	dial := func(say string) net.Conn {
		c, err := net.Dial("tcp", door.l.where())
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		_, err = c.Write([]byte(say))
		require.NoError(t, err)
		return c
	}
	c := dial("GET ")
	testutil.Within(t, testutil.Limit, "the end of a stranger", func() {
		_, err := c.Read(make([]byte, 1))
		require.Error(t, err)
	})
	pending := func() int {
		door.l.pending.mu.Lock()
		defer door.l.pending.mu.Unlock()
		return len(door.l.pending.conns)
	}
	require.Zero(t, pending())
	dial(helloMagic[:1])
	testutil.Eventually(t, testutil.Limit, func() bool { return pending() == 1 }, "one who may begin a hello")
}
