package shm

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/internal/testutil"
)

// join connects two endpoints.
func join(tb testing.TB, x, y fabric.Endpoint) {
	tb.Helper()
	ctx := testutil.Context(tb, testutil.Limit)
	done := make(chan error, 1)
	go func() { done <- x.Connect(ctx, y.Address()) }()
	err := y.Connect(ctx, x.Address())
	require.NoError(tb, errors.Join(err, <-done))
}

// pair opens two links with an endpoint each, joined and adopted.
func pair(tb testing.TB, o Options, eo fabric.EndpointOptions) (x, y *endpoint) {
	tb.Helper()
	a, b := openPair(tb, o)
	return pairOn(tb, a, b, eo)
}

func pairOn(tb testing.TB, a, b *link, eo fabric.EndpointOptions) (x, y *endpoint) {
	tb.Helper()
	x, err := a.newEndpoint(eo)
	require.NoError(tb, err)
	y, err = b.newEndpoint(eo)
	require.NoError(tb, err)
	join(tb, x, y)
	poll(tb, a)
	poll(tb, b)
	return x, y
}

// poll polls once and expects nothing.
func poll(tb testing.TB, l fabric.Link) {
	tb.Helper()
	var cs [8]fabric.Completion
	if n := l.Poll(cs[:]); n != 0 {
		tb.Fatalf("unexpected completions %v", cs[:n])
	}
}

// await polls l, and others beside it, until l reports a completion.
func await(tb testing.TB, l fabric.Link, others ...fabric.Link) (c fabric.Completion) {
	tb.Helper()
	var cs [1]fabric.Completion
	testutil.Eventually(tb, testutil.Limit, func() bool {
		for _, o := range others {
			poll(tb, o)
		}
		return l.Poll(cs[:]) == 1
	}, "a completion")
	return cs[0]
}

// alloc allocates, register registers; the regions close with the test.
func alloc(tb testing.TB, l *link, n int) fabric.Region {
	tb.Helper()
	r, err := l.Alloc(n, fabric.AccessAll)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, r.Close()) })
	return r
}

func register(tb testing.TB, l *link, n int) fabric.Region {
	tb.Helper()
	r, err := l.Register(testutil.Scratch(tb, n), fabric.AccessAll)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, r.Close()) })
	return r
}

func write(local fabric.Region, off, n int, remote fabric.RemoteKey, roff int) fabric.WR {
	return fabric.WR{
		Op: fabric.OpWrite, Flags: fabric.FlagSignaled,
		Local:      []fabric.SGE{fabric.NewSGE(local.Bytes()[off:off+n], local.LKey())},
		RemoteAddr: remote.Addr + uint64(roff), RKey: remote.RKey,
	}
}

// post posts one request that must be taken.
func post(tb testing.TB, ep fabric.Endpoint, wr fabric.WR) {
	tb.Helper()
	n, err := ep.Post([]fabric.WR{wr})
	require.NoError(tb, err)
	require.Equal(tb, 1, n)
}

// readable waits up to d for the link's descriptor.
func readable(tb testing.TB, l fabric.Link, d time.Duration) bool {
	tb.Helper()
	fds := []unix.PollFd{{Fd: int32(l.FD()), Events: unix.POLLIN}}
	for end := time.Now().Add(d); ; { // deadline: the caller's
		n, err := unix.Poll(fds, int(max(0, time.Until(end).Milliseconds())))
		if err == unix.EINTR {
			continue
		}
		require.NoError(tb, err)
		return n == 1
	}
}

// What the functions of children use, which have no testing.TB.

func contextFor(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d) // deadline: the caller's
}

func mustScratch(n int) []byte {
	b, err := offheap.Alloc(n, offheap.Scratch)
	if err != nil {
		panic(err)
	}
	return b
}

func waitReadable(fd, ms int) {
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, ms)
}
