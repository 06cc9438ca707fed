package rma

import (
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/internal/testutil"
)

// Registered memory may be larger than any message: it can receive one, but not be one.
func TestMessagesOfLargeMemory(t *testing.T) {
	if bits.UintSize < 64 {
		return // no memory is so large
	}
	t.Parallel()
	ctx := testutil.Context(t, testutil.Limit)
	large := uint64(1<<32 + 8)
	space, err := unix.Mmap(-1, 0, int(large), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON) // of which no system must have as much
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(space)) })
	require.NoError(t, unix.Mprotect(space[:unix.Getpagesize()], unix.PROT_READ|unix.PROT_WRITE))
	es := open(t, 2, "tcp")
	mem, err := es[0].Register(space)
	require.NoError(t, err)
	p, whole, behind := es[0].Peer(1), mem.Slice(0, int(large)), mem.Slice(8, int(large))
	require.ErrorIs(t, p.SendBuffer(1, whole).Wait(ctx), ErrTooLarge)
	b := p.Batch()
	b.AddBuffer(1, whole)
	require.ErrorIs(t, b.Send().Wait(ctx), ErrTooLarge)
	require.ErrorIs(t, p.SendBuffer(1, behind).Wait(ctx), ErrBounds)
	_, err = p.RecvBuffer(1, behind).Wait(ctx)
	require.ErrorIs(t, err, ErrBounds)

	got := p.RecvBuffer(1, whole)
	require.NoError(t, es[1].Peer(0).SendTag(1, []byte("message")).Wait(ctx))
	n, err := got.Wait(ctx)
	require.NoError(t, err)
	require.Equal(t, "message", string(mem.Bytes()[:n]))
}
