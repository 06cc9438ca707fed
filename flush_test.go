package rma

import (
	"context"
	"encoding/binary"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// After a flush, the data of earlier puts is in the target's memory, without a wait for
// their requests.
func TestFlush(t *testing.T) {
	onAll(t, 3, func(t *testing.T, es []*Engine) {
		mems, keys := share(t, es, 1<<16)
		together(t, es, func(ctx context.Context, e *Engine) error {
			me := e.Rank()
			for i := range 5 {
				testutil.Fill(mems[me].Bytes()[:8192], uint64(100*me+i), 0)
				for to := range es {
					for k := range 16 {
						at := 8192 + 8192*me + 512*k
						e.Peer(to).Put(keys[to].At(at), mems[me].Slice(512*k, 512)).Forget()
					}
				}
				if i%2 == 0 {
					if err := e.FlushAll(ctx); err != nil {
						return err
					}
				} else {
					for to := range es {
						if err := e.Peer(to).Flush().Wait(ctx); err != nil {
							return err
						}
					}
				}
				for to := range es {
					if err := testutil.Verify(mems[to].Bytes()[8192+8192*me:][:8192], uint64(100*me+i), 0); err != nil {
						return err
					}
				}
			}
			return nil
		})
		for _, e := range es {
			s := e.Stats()
			require.EqualValues(t, 5*3*16, s.Puts)
			for _, p := range e.peers {
				require.False(t, p.one.Busy())
			}
		}
	})
}

// The next flush returns errors of forgotten operations, once.
func TestFlushTellsWhatWasForgotten(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		mems, keys := share(t, es, 4096)
		p := es[0].Peer(1)
		p.Put(keys[1].At(4096), mems[0].Slice(0, 8)).Forget()
		p.Put(keys[1].At(0), mems[0].Slice(0, 8)).Forget()
		require.ErrorIs(t, p.Flush().Wait(ctx), ErrBounds)
		require.NoError(t, p.Flush().Wait(ctx))

		extra, err := es[1].Alloc(64)
		require.NoError(t, err)
		stale := extra.Key()
		require.NoError(t, extra.Close())
		p.Put(stale.At(0), mems[0].Slice(0, 8)).Forget()
		require.ErrorIs(t, es[0].FlushAll(ctx), ErrRemoteAccess)
		require.ErrorIs(t, p.Flush().Wait(ctx), ErrFlushed)
		p.Put(keys[1].At(0), mems[0].Slice(0, 8)).Forget()
		require.ErrorIs(t, es[0].FlushAll(ctx), ErrFlushed)
	})
}

// A flush whose context ends, and a window that is freed, leave the errors of forgotten
// operations to the next flush.
func TestErrorsOutliveFlushes(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		over, end := context.WithCancel(ctx)
		end()
		mems, keys := share(t, es, 4096)
		p := es[0].Peer(1)
		forget := func() { p.Put(keys[1].At(4096), mems[0].Slice(0, 8)).Forget() }

		testutil.Eventually(t, testutil.Limit, es[1].prog.Hold, "rank 1 does not connect")
		forget()
		put := p.Put(keys[1].At(0), mems[0].Slice(0, 8))
		require.ErrorIs(t, es[0].FlushAll(over), context.Canceled)
		es[1].prog.Disown()
		require.NoError(t, put.Wait(ctx))
		require.ErrorIs(t, es[0].FlushAll(ctx), ErrBounds)
		require.NoError(t, es[0].FlushAll(ctx))

		joined, err := JoinWindow(es[0], mems[0], []int{1}, keys[1:])
		require.NoError(t, err)
		forget()
		require.NoError(t, joined.Free(ctx))
		require.ErrorIs(t, p.Flush().Wait(ctx), ErrBounds)

		together(t, es, func(ctx context.Context, e *Engine) error {
			w, err := e.Window(ctx, 8)
			if err != nil {
				return err
			}
			if e == es[0] {
				forget()
			}
			return w.Free(ctx)
		})
		require.ErrorIs(t, es[0].FlushAll(ctx), ErrBounds)
		require.NoError(t, es[0].FlushAll(ctx))
	})
}

// A fenced put does not overtake the get before it, on any link.
func TestFence(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		mems, keys := share(t, es, 4096)
		p := es[0].Peer(1)
		b := mems[0].Bytes()
		for i := range uint64(200) {
			binary.NativeEndian.PutUint64(b[8:], i+1)
			get := p.Get(mems[0].Slice(0, 8), keys[1].At(0))
			if i%2 == 0 {
				p.Fence()
			} else {
				es[0].FenceAll()
			}
			put := p.Put(keys[1].At(0), mems[0].Slice(8, 8))
			require.NoError(t, WaitAll(ctx, get, put))
			require.Equal(t, i, binary.NativeEndian.Uint64(b))
		}
		p.Fence() // without operations before
		require.NoError(t, p.Flush().Wait(ctx))
	})
}

// Goroutines flush while others put: each flush covers its own goroutine's puts.
func TestFlushFromManyGoroutines(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		mems, keys := share(t, es, 1<<16)
		p := es[0].Peer(1)
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				at := 1024 * (w + 1)
				mem := mems[0].Bytes()[at : at+8]
				for i := range uint64(60) {
					binary.NativeEndian.PutUint64(mem, i)
					p.Put(keys[1].At(at), mems[0].Slice(at, 8)).Forget()
					if i%3 == 0 {
						p.Fence()
					}
					if err := p.Flush().Wait(ctx); err != nil {
						t.Error(err)
						return
					}
					if got := testutil.Load64(mems[1].Bytes()[at:]); got != i {
						t.Errorf("goroutine %d: flushed %d, found %d", w, i, got)
						return
					}
				}
			})
		}
		wg.Wait()
	})
}
