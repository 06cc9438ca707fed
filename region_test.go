package rma

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

func TestAllocOfImpossibleSizes(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		e := open(t, 1, fabric)[0]
		_, err := e.Alloc(-1)
		require.ErrorIs(t, err, ErrInvalid)
		_, err = e.Alloc(8, PeersRead, 255)
		require.ErrorIs(t, err, ErrInvalid)
		_, err = e.Register(make([]byte, 8), 64)
		require.ErrorIs(t, err, ErrInvalid)
		for _, size := range []int{1 << 45, math.MaxInt} { // more than the host has, and more than a process can map
			_, err = e.Alloc(size)
			require.ErrorIs(t, err, ErrResources)
		}
	})
}

// A region cannot be closed while operations of this rank of any kind are in flight in it,
// but can afterwards. Nothing is written to released memory.
func TestRegionStaysWhileItIsUsed(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		_, keys := share(t, es, 1<<20)
		p, k := es[0].Peer(1), &keys[1]
		refused := 0
		for round := range 12 {
			mem := make([]byte, 1<<19)
			r, err := es[0].Register(mem)
			require.NoError(t, err)
			var reqs []Request
			for i := range 20 {
				switch b := r.Slice(i*4096, 4000); round % 3 {
				case 0:
					reqs = append(reqs, p.Get(b, k.At(0)))
				case 1:
					reqs = append(reqs, p.GetV([]Buffer{b}, []Span{k.Slice(0, 2000), k.Slice(4000, 2000)}))
				default:
					reqs = append(reqs, p.GetStrided(b, k.At(0), Shape2D(100, 20, 40, 60)))
				}
			}
			if err := r.Close(); err != nil {
				refused++
				require.ErrorIs(t, err, ErrInUse)
				require.NoError(t, WaitAll(ctx, reqs...), "nothing was taken from under them")
				require.NoError(t, r.Close())
			} else {
				require.NoError(t, WaitAll(ctx, reqs...), "they were complete")
			}
			require.NoError(t, r.Close())
			require.True(t, errors.Is(p.Get(r.Slice(0, 8), k.At(0)).Wait(ctx), ErrForeign))
		}
		if !es[0].links[0].Caps().Immediate {
			require.Positive(t, refused)
		}
	})
}

// Messages and puts leave memory pinned. Closing its region drops the pins, so that memory
// allocated later at the same address is not sent by the old registration.
func TestClosedRegionIsUnpinned(t *testing.T) {
	try := func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		const size = 1 << 18
		far, err := es[1].Alloc(size)
		require.NoError(t, err)
		key := far.Key()
		buf := make([]byte, size)
		for i := range uint64(6) {
			r, err := es[0].Alloc(size)
			require.NoError(t, err)
			testutil.Fill(r.Bytes(), i, 0)
			send := es[0].Peer(1).SendTag(7, r.Bytes())
			if i == 5 { // the last one
				require.Eventually(t, func() bool { return es[0].Stats().Pinned > 0 }, testutil.Limit, 100*time.Microsecond)
				require.ErrorIs(t, r.Close(), ErrInUse)
			}
			n, err := es[1].Peer(0).RecvTag(7, buf).Wait(ctx)
			require.NoError(t, err)
			require.NoError(t, send.Wait(ctx))
			require.NoError(t, testutil.Verify(buf[:n], i, 0), "message %d", i)
			require.NoError(t, es[0].Peer(1).PutBytes(key.At(0), r.Bytes()).Wait(ctx))
			require.NoError(t, testutil.Verify(far.Bytes(), i, 0), "put %d", i)
			require.Positive(t, es[0].Stats().Pinned)
			require.NoError(t, r.Close())
		}
		require.Zero(t, es[0].Stats().Pinned)
	}
	with := func(t *testing.T, fabric, device string) {
		try(t, openWith(t, 2, fabric, func(c *Config) { c.Mode, c.Device = "scatter", device }))
	}
	t.Run("sim", func(t *testing.T) { t.Parallel(); with(t, "", "sim") })
	onEach(t, func(t *testing.T, fabric string) { with(t, fabric, "") })
}
