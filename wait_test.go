package rma

import (
	"context"
	"encoding/binary"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

func TestWaitAllAndAny(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		mems, keys := share(t, es, 1<<16)
		p := es[0].Peer(1)
		var reqs []Request
		for i := range 40 {
			reqs = append(reqs, p.Put(keys[1].At(64*i), mems[0].Slice(64*i, 64)))
		}
		for n := range 40 {
			i, err := WaitAny(ctx, reqs...)
			require.NoError(t, err, n)
			require.NoError(t, reqs[i].Wait(ctx))
			if n%2 == 0 {
				reqs[i] = Request{}
			}
		}
		_, err := WaitAny(ctx, reqs...)
		require.ErrorIs(t, err, ErrRequestUsed)
		require.NoError(t, WaitAll(ctx, reqs...))

		for i := range reqs {
			reqs[i] = p.Get(mems[0].Slice(64*i, 64), keys[1].At(64*i))
		}
		bad := p.Get(mems[0].Slice(0, 8), keys[0].At(0))
		err = WaitAll(ctx, append(reqs, bad, p.Put(keys[1].At(1<<16), mems[0].Slice(0, 1)))...)
		require.ErrorIs(t, err, ErrWrongPeer)
		require.ErrorIs(t, err, ErrBounds)
		for _, r := range reqs {
			require.ErrorIs(t, r.Wait(ctx), ErrRequestUsed)
		}
		i, err := WaitAny(ctx, Request{}, bad)
		require.NoError(t, err)
		require.Equal(t, 1, i, "refused is complete")
	})
}

// A context that ends leaves all requests as they were.
func TestWaitAllEndsWithItsContext(t *testing.T) {
	es := simulate(t, 1, "sim")
	mems, keys := share(t, es, 64)
	never := es[0].AwaitSignal(mems[0].Slice(0, 8), EQ, 5)
	put := es[0].Peer(0).Put(keys[0].At(8), mems[0].Slice(16, 8))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond) // deadline: it has to end
	defer cancel()
	require.ErrorIs(t, WaitAll(ctx, put, never.Request), context.DeadlineExceeded)
	require.NoError(t, put.Wait(t.Context()))
	_, err := WaitAny(ctx, put, never.Request)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, es[0].Peer(0).Signal(keys[0].At(0), SignalSet, 5).Wait(t.Context()))
	i, err := WaitAny(t.Context(), put, never.Request)
	require.NoError(t, err)
	require.Equal(t, 1, i)
	v, err := never.Wait(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 5, v)
}

// Callbacks are called once each, may begin operations, and get the error.
func TestThen(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		mems, keys := share(t, es, 4096)
		p := es[0].Peer(1)
		const chains, links = 4, 50
		var done atomic.Int64
		finished := make(chan struct{}, chains)
		for range chains {
			var next func(error)
			n := 0
			next = func(err error) {
				if err != nil {
					panic(err)
				}
				done.Add(1)
				if n++; n < links {
					p.Put(keys[1].At(0), mems[0].Slice(0, 64)).Then(next)
					return
				}
				finished <- struct{}{}
			}
			p.Put(keys[1].At(0), mems[0].Slice(0, 64)).Then(next)
		}
		for range chains {
			select {
			case <-finished:
			case <-ctx.Done():
				t.Fatal("callbacks missing")
			}
		}
		require.EqualValues(t, chains*links, done.Load())
		r := p.Put(keys[1].At(0), mems[0].Slice(0, 8))
		require.NoError(t, r.Wait(ctx))
		var got error
		r.Then(func(err error) { got = err })
		require.ErrorIs(t, got, ErrRequestUsed)
		p.Put(keys[1].At(4096), mems[0].Slice(0, 8)).Then(func(err error) { got = err })
		require.ErrorIs(t, got, ErrBounds)
	})
}

// ThenLen reports the length of a message that has come before or comes later, and the error
// of a receive that ends without one.
func TestThenLen(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		es := open(t, 2, fabric)
		ctx := testutil.Context(t, testutil.Limit)
		type result struct {
			n   int
			err error
		}
		results := make(chan result, 1)
		take := func(n int, err error) { results <- result{n, err} }
		for _, n := range []int{0, 5, 4000, 1 << 20} {
			for _, first := range []bool{false, true} {
				var sent Request
				if first {
					sent = es[0].Peer(1).SendTag(7, make([]byte, n))
					if n <= 4000 {
						require.NoError(t, sent.Wait(ctx))
					}
				}
				es[1].Peer(0).RecvTag(7, make([]byte, n+8)).ThenLen(take)
				if !first {
					sent = es[0].Peer(1).SendTag(7, make([]byte, n))
				}
				if !first || n > 4000 {
					require.NoError(t, sent.Wait(ctx))
				}
				select {
				case r := <-results:
					require.Equal(t, result{n, nil}, r)
				case <-ctx.Done():
					t.Fatal("callback missing")
				}
			}
		}
		r := es[1].Peer(0).RecvTag(7, nil)
		r.ThenLen(take)
		r.ThenLen(take)
		require.ErrorIs(t, (<-results).err, ErrRequestUsed)
		require.NoError(t, es[0].Peer(1).SendTag(7, make([]byte, 9)).Wait(ctx))
		require.ErrorIs(t, (<-results).err, ErrShortBuffer)
	})
}

// Operations, messages and waits work in a bubble, with engines that were opened outside, and
// leave nothing of it behind in these.
func TestInABubble(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		es := open(t, 2, fabric)
		mems, keys := share(t, es, 4096)
		use := func(t *testing.T) {
			ctx := context.Background()
			mem, err := es[0].Alloc(8)
			require.NoError(t, err)
			p, ev := es[0].Peer(1), es[0].NewEvent()
			before := binary.NativeEndian.Uint64(mems[1].Bytes()[256:])
			for i := range uint64(100) {
				binary.NativeEndian.PutUint64(mem.Bytes(), i)
				require.NoError(t, p.Put(keys[1].At(64), mem.Slice(0, 8)).Wait(ctx))
				_, err := p.FetchAdd(keys[1].At(128), 1).Wait(ctx)
				require.NoError(t, err)
				get := p.Get(mem.Slice(0, 8), keys[1].At(64))
				_, err = WaitAny(ctx, get)
				require.NoError(t, err)
				require.NoError(t, get.Wait(ctx))
				require.Equal(t, i, binary.NativeEndian.Uint64(mem.Bytes()))

				met := make(chan error, 1)
				go func() {
					_, err := es[1].WaitSignal(ctx, mems[1].Slice(256, 8), EQ, before+i+1)
					met <- err
				}()
				p.Signal(keys[1].At(256), SignalAdd, 1).Forget()
				require.NoError(t, <-met)

				recv := es[1].Peer(0).Recv(make([]byte, 8))
				require.NoError(t, p.Send([]byte{1}).Wait(ctx))
				_, err = recv.Wait(ctx)
				require.NoError(t, err)
				require.NoError(t, es[0].FlushAll(ctx))

				ev.Reset()
				go ev.Set()
				require.NoError(t, ev.Wait(ctx))
			}
			require.NoError(t, mem.Close())
		}
		synctest.Test(t, use)
		use(t)
		for _, e := range es {
			require.NoError(t, e.Close())
		}
	})
}
