package rma

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/internal/testutil"
)

// staged is about the longest memory that is copied instead of pinned.
const staged = 4096

// Slices of the Go heap of all sizes, many at once, while the collector runs.
func TestBytes(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		mems, keys := share(t, es, 4<<20)
		var g errgroup.Group
		for w := range 4 {
			g.Go(func() error {
				p := es[0].Peer((w + 1) % 2)
				k := &keys[(w+1)%2]
				base := w << 20
				for i, n := range []int{0, 1, 100, staged, staged + 1, 70_000, 300_000, 5, 300_000} {
					src := testutil.Payload(n, uint64(w*100+i), 0)
					put := p.PutBytes(k.At(base+7), src)
					runtime.GC()
					if err := put.Wait(ctx); err != nil {
						return err
					}
					if err := testutil.Verify(mems[(w+1)%2].Bytes()[base+7:][:n], uint64(w*100+i), 0); err != nil {
						return fmt.Errorf("put of %d: %w", n, err)
					}
					dst := testutil.Guard(make([]byte, n+64), 32, n)
					get := p.GetBytes(dst.Buf, k.At(base+7))
					runtime.GC()
					if err := get.Wait(ctx); err != nil {
						return err
					}
					if err := testutil.Verify(dst.Buf, uint64(w*100+i), 0); err != nil {
						return fmt.Errorf("get of %d: %w", n, err)
					}
					if err := dst.Check(); err != nil {
						return err
					}
				}
				return nil
			})
		}
		require.NoError(t, g.Wait())
		// More operations at once than staging memory holds.
		var reqs []Request
		src := testutil.Payload(staged, 5, 0)
		for range 3000 {
			reqs = append(reqs, es[0].Peer(1).PutBytes(keys[1].At(0), src))
		}
		require.NoError(t, WaitAll(ctx, reqs...))
		require.ErrorIs(t, es[0].Peer(1).PutBytes(keys[1].At(4<<20), src[:1]).Wait(ctx), ErrBounds)
	})
}

// Memory is returned when the peer leaves during operations.
func TestBytesToAPeerThatLeaves(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		_, keys := share(t, es, 1<<20)
		ctx := testutil.Context(t, testutil.Limit)
		p := es[0].Peer(1)
		var reqs []Request
		for i := range 200 {
			reqs = append(reqs, p.PutBytes(keys[1].At(0), make([]byte, 1+i*100)), p.GetBytes(make([]byte, 1+i*100), keys[1].At(0)))
		}
		require.NoError(t, es[1].Close())
		for _, r := range reqs {
			_ = r.Wait(ctx) // well or not
		}
		testutil.Eventually(t, testutil.Limit, func() bool { return p.PutBytes(keys[1].At(0), make([]byte, 9)).Wait(ctx) != nil }, "an error")
		require.False(t, busy(p))
		require.NoError(t, es[0].Close(), "which looks for copies that are left")
	})
}

func TestBytesAllocateNothing(t *testing.T) {
	if testutil.Race {
		t.Skip("the race detector makes sync.Pool forget")
	}
	alone(t, func(t *testing.T, fabric string) {
		es := open(t, 2, fabric)
		_, keys := share(t, es, 1<<20)
		p, ctx := es[0].Peer(1), context.Background()
		for _, n := range []int{8, staged, 1 << 16} {
			mem := make([]byte, n)
			f := func() {
				if err := WaitAll(ctx, p.PutBytes(keys[1].At(0), mem), p.GetBytes(mem, keys[1].At(0))); err != nil {
					panic(err)
				}
			}
			f()
			runtime.GC()
			require.Zero(t, testutil.AllocsPerRun(200, f), "%d bytes over %s", n, fabric)
		}
	})
}

// An operation that is refused after it got memory leaves no state to the next one of its
// kind.
func TestRefusedLeavesNothing(t *testing.T) {
	es := open(t, 1, "shm")
	mems, keys := share(t, es, 64)
	p := es[0].Peer(0)
	for i := range 100 {
		require.ErrorIs(t, p.PutBytes(keys[0].At(60), []byte("too long")).Wait(t.Context()), ErrBounds)
		copy(mems[0].Bytes(), "source")
		req := p.PutStrided(keys[0].At(32), mems[0].Slice(0, 6), Shape2D(1, 6, 6, 6))
		require.NoError(t, req.Wait(t.Context()))
		require.Equal(t, "source", string(mems[0].Bytes()[32:38]), i)
		clear(mems[0].Bytes())
	}
}
