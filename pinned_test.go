package rma

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/internal/testutil"
)

// Unregistered memory of messages stays pinned, is counted, and is released by Invalidate,
// but not while a message uses it.
func TestInvalidate(t *testing.T) {
	t.Parallel()
	ctx := testutil.Context(t, 60*time.Second)
	es := openWith(t, 2, "tcp", func(c *Config) { c.Mode = "scatter" })
	const size = 1 << 18
	// A mapping, which the collector does not know.
	mapped, err := offheap.Alloc(size, offheap.Regions)
	require.NoError(t, err)
	buf := make([]byte, size)
	for i := range 5 {
		testutil.Fill(mapped, uint64(i), 0)
		send := es[0].Peer(1).SendTag(7, mapped)
		n, err := es[1].Peer(0).RecvTag(7, buf).Wait(ctx)
		require.NoError(t, err)
		require.NoError(t, send.Wait(ctx))
		require.NoError(t, testutil.Verify(buf[:n], uint64(i), 0))
	}
	s := es[0].Stats()
	require.Equal(t, size, s.Pinned)
	require.EqualValues(t, 1, s.PinMisses)
	require.EqualValues(t, 4, s.PinHits)

	send := es[0].Peer(1).SendTag(7, mapped)
	require.Eventually(t, func() bool {
		s := es[0].Stats().Messages
		return s.Fetched+s.Written == 6
	}, testutil.Limit, 100*time.Microsecond)
	require.ErrorIs(t, es[0].Invalidate(mapped[:1]), ErrInUse)
	_, err = es[1].Peer(0).RecvTag(7, buf).Wait(ctx)
	require.NoError(t, err)
	require.NoError(t, send.Wait(ctx))
	require.NoError(t, es[0].Invalidate(mapped[:1]))
	require.Zero(t, es[0].Stats().Pinned)
	require.NoError(t, offheap.Free(mapped, offheap.Regions))
	require.NoError(t, es[1].Close())
	require.NoError(t, es[1].Invalidate(buf))
}

// A large receive that is posted before its message is advertised and written to.
func TestReceiverFirst(t *testing.T) {
	t.Parallel()
	ctx := testutil.Context(t, 60*time.Second)
	es := openWith(t, 2, "shm", func(c *Config) { c.Mode = "scatter" })
	mem, err := es[1].Alloc(1 << 16)
	require.NoError(t, err)
	var word [1]byte
	signal := func() { // rank 1 tells rank 0
		es[1].Peer(0).Send(word[:0])
		_, err := es[0].Peer(1).Recv(word[:]).Wait(ctx)
		require.NoError(t, err)
	}
	signal() // the channel is open
	for i := range 10 {
		before := es[1].Stats().Messages.Adverts
		recv := es[1].Peer(0).RecvBuffer(3, mem.Slice(0, 1<<16))
		require.Eventually(t, func() bool { return es[1].Stats().Messages.Adverts > before }, testutil.Limit, 100*time.Microsecond)
		signal()
		data := testutil.Payload(60000, uint64(i), 0)
		require.NoError(t, es[0].Peer(1).SendTag(3, data).Wait(ctx))
		n, err := recv.Wait(ctx)
		require.NoError(t, err)
		require.Equal(t, data, mem.Bytes()[:n])
	}
	require.EqualValues(t, 10, es[0].Stats().Messages.Written)
	require.Zero(t, es[1].Stats().Messages.LateAdverts)
}
