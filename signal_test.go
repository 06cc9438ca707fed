package rma

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/internal/testutil"
)

// A rank that has seen the signal sees the data: every size, set and add, both ways in
// turns, sleeping or not.
func TestPutSignalCarriesItsData(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		const size = 1 << 17
		mems, keys := share(t, es, size)
		sizes := []int{8, 0, 1, 200, 5000, 70_000}
		together(t, es, func(ctx context.Context, e *Engine) error {
			me, you := e.Rank(), 1-e.Rank()
			p, mem := e.Peer(you), mems[e.Rank()]
			var reqs []Request
			for i := range 60 {
				n := sizes[i%len(sizes)]
				if i%2 == me {
					testutil.Fill(mem.Bytes()[1024:1024+n], uint64(i), 0)
					op, v := SignalSet, uint64(i+1)
					if i%4 < 2 {
						op, v = SignalAdd, uint64(i+1)-binary.NativeEndian.Uint64(mem.Bytes()[16:])
					}
					binary.NativeEndian.PutUint64(mem.Bytes()[16:], uint64(i+1))
					reqs = append(reqs, p.PutSignal(keys[you].At(1024), mem.Slice(1024, n), keys[you].At(0), op, v))
					continue
				}
				if i%8 == 5 {
					time.Sleep(5 * time.Millisecond) // sleep: the engine of the waiting side goes to sleep now and then
				}
				v, err := e.WaitSignal(ctx, mem.Slice(0, 8), GE, uint64(i+1))
				if err != nil || v != uint64(i+1) {
					return fmt.Errorf("step %d: %d, %w", i, v, err)
				}
				if err := testutil.Verify(mem.Bytes()[1024:1024+n], uint64(i), 0); err != nil {
					return fmt.Errorf("step %d, %d bytes: %w", i, n, err)
				}
			}
			return WaitAll(ctx, reqs...)
		})
		require.EqualValues(t, 30, es[0].Stats().Signals)
	})
}

// A target that sleeps is woken by a signal without data, on every link.
func TestSignalWakesASleeper(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		mems, keys := share(t, es, 64)
		for i := range uint64(3) {
			r := es[1].AwaitSignal(mems[1].Slice(8, 8), EQ, i+1)
			time.Sleep(30 * time.Millisecond) // sleep: long enough for both engines to sleep
			require.False(t, r.Done())
			require.NoError(t, es[0].Peer(1).Signal(keys[1].At(8), SignalAdd, 1).Wait(ctx))
			v, err := r.Wait(ctx)
			require.NoError(t, err)
			require.Equal(t, i+1, v)
		}
	})
}

// Many words are checked in turns: a signal for any of them ends its wait at once and no
// other, whether the engine sleeps or others of its goroutines poll.
func TestManyAwaitedWords(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		const words = 100
		ctx := testutil.Context(t, testutil.Limit)
		mems, keys := share(t, es, 8*words)
		var rs []AtomicRequest
		for i := range words {
			rs = append(rs, es[1].AwaitSignal(mems[1].Slice(8*i, 8), GT, 1))
		}
		for i := range words {
			k := (i*37 + 5) % words
			require.NoError(t, es[0].Peer(1).Signal(keys[1].At(8*k), SignalSet, 1).Wait(ctx)) // not enough
			require.False(t, rs[k].Done())
			require.NoError(t, es[0].Peer(1).Signal(keys[1].At(8*k), SignalSet, uint64(k)+2).Wait(ctx))
			for i%2 == 1 && !rs[k].Done() {
				es[1].Progress()
				require.NoError(t, ctx.Err())
			}
			v, err := rs[k].Wait(ctx)
			require.NoError(t, err)
			require.EqualValues(t, k+2, v)
		}
	})
}

func TestWaitSignalEnds(t *testing.T) {
	onAll(t, 3, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		mems, _ := share(t, es, 64)
		short, cancel := context.WithTimeout(ctx, 10*time.Millisecond) // deadline: it has to end
		defer cancel()
		_, err := es[0].WaitSignal(short, mems[0].Slice(0, 8), NE, 0)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		extra, err := es[0].Alloc(8)
		require.NoError(t, err)
		r := es[0].AwaitSignal(extra.Slice(0, 8), NE, 0)
		require.Error(t, extra.Close(), "somebody looks at it")

		// A wait for a peer ends when the peer is gone; one for any rank continues.
		const waits = 40
		gone := make(chan error, waits)
		for range waits {
			go func() {
				_, err := es[0].Peer(1).WaitSignal(ctx, mems[0].Slice(8, 8), EQ, 5)
				gone <- err
			}()
		}
		require.NoError(t, es[1].Close())
		for range waits {
			err = <-gone
			require.ErrorIs(t, err, ErrPeerGone)
			var pe *PeerError
			require.True(t, errors.As(err, &pe))
			require.Equal(t, 1, pe.Rank)
		}
		require.False(t, r.Done())

		require.NoError(t, es[0].Close())
		_, err = r.Wait(ctx)
		require.ErrorIs(t, err, ErrClosed)
		_, err = es[0].WaitSignal(ctx, mems[0].Slice(0, 8), EQ, 0)
		require.ErrorIs(t, err, ErrClosed)
	})
}

// WaitUntil compares words by size and sign: a rank counts another's word down below zero,
// and the other sees that, unaffected by the neighbouring word.
func TestWaitUntil(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		mems, keys := share(t, es, 64)
		p, there := es[0].Peer(1), mems[1]
		low, high := AwaitUntil(es[1], there.Slice(4, 4), LT, int32(0)), AwaitUntil(es[1], there.Slice(8, 8), LE, int64(-3))
		below := AwaitUntil(es[1], there.Slice(0, 4), NE, uint32(0))
		for i := range 4 {
			require.False(t, low.Done())
			v, err := Fetch(p, keys[1].At(4), Sum, int32(1)).Wait(ctx)
			require.NoError(t, err)
			require.EqualValues(t, i, v)
		}
		require.NoError(t, Accumulate(p, keys[1].At(4), Sum, []int32{-9}).Wait(ctx))
		v, err := low.Wait(ctx)
		require.NoError(t, err)
		require.Equal(t, int32(-5), v)
		require.False(t, high.Done())
		binary.NativeEndian.PutUint64(mems[0].Bytes(), ^uint64(6))
		require.NoError(t, p.Put(keys[1].At(8), mems[0].Slice(0, 8)).Wait(ctx))
		w, err := high.Wait(ctx)
		require.NoError(t, err)
		require.Equal(t, int64(-7), w)
		require.False(t, below.Done())
		u, err := WaitUntil(ctx, es[1], there.Slice(4, 4), GE, ^uint32(4)) // the same bits
		require.NoError(t, err)
		require.Equal(t, ^uint32(4), u)
		require.NoError(t, p.Signal(keys[1].At(0), SignalSet, 1|1<<32).Wait(ctx))
		_, err = below.Wait(ctx)
		require.NoError(t, err)

		for r, want := range map[Request]error{
			AwaitUntil(es[1], there.Slice(0, 8), EQ, int32(0)).Request: ErrLength,
			AwaitUntil(es[1], there.Slice(2, 4), EQ, int32(0)).Request: ErrAlign,
			AwaitUntil(es[1], there.Slice(4, 8), EQ, int64(0)).Request: ErrAlign,
		} {
			require.ErrorIs(t, r.Wait(ctx), want)
		}
		require.NoError(t, there.Close(), "nothing is held")
	})
}

func TestSignalRefusals(t *testing.T) {
	es := simulate(t, 2, "sim")
	ctx := testutil.Context(t, testutil.Limit)
	mems, keys := share(t, es, 64)
	p, m := es[0].Peer(1), mems[0]
	for i, c := range []struct {
		r    Request
		want error
	}{
		{p.Signal(keys[1].At(4), SignalSet, 1), ErrAlign},
		{p.Signal(keys[1].At(64), SignalSet, 1), ErrBounds},
		{p.Signal(keys[0].At(0), SignalSet, 1), ErrWrongPeer},
		{p.Signal(keys[1].At(0), 2, 1), ErrInvalid},
		{p.PutSignal(keys[1].At(60), m.Slice(0, 5), keys[1].At(0), SignalSet, 1), ErrBounds},
		{p.PutSignal(keys[1].At(0), m.Slice(60, 5), keys[1].At(0), SignalSet, 1), ErrBounds},
		{p.PutSignal(keys[1].At(0), m.Slice(0, -1), keys[1].At(0), SignalSet, 1), ErrBounds},
		{p.PutSignal(keys[1].At(0), m.Slice(65, 0), keys[1].At(0), SignalSet, 1), ErrBounds},
		{p.PutSignal(keys[1].At(65), m.Slice(0, 0), keys[1].At(0), SignalSet, 1), ErrBounds},
		{p.PutSignal(keys[0].At(0), m.Slice(0, 0), keys[1].At(0), SignalSet, 1), ErrWrongPeer},
		{p.PutSignal(keys[1].At(0), mems[1].Slice(0, 0), keys[1].At(0), SignalSet, 1), ErrForeign},
		{p.PutSignal(keys[1].At(0), (*Region)(nil).Slice(0, 8), keys[1].At(0), SignalSet, 1), ErrForeign},
		{es[0].AwaitSignal(m.Slice(0, 4), EQ, 0).Request, ErrLength},
		{es[0].AwaitSignal(m.Slice(4, 8), EQ, 0).Request, ErrAlign},
		{es[0].AwaitSignal(m.Slice(60, 8), EQ, 0).Request, ErrBounds},
		{es[0].AwaitSignal(mems[1].Slice(0, 8), EQ, 0).Request, ErrForeign},
		{es[0].AwaitSignal(m.Slice(0, 8), 6, 0).Request, ErrInvalid},
	} {
		require.ErrorIs(t, c.r.Wait(ctx), c.want, "%d", i)
	}
	require.Equal(t, make([]byte, 64), mems[1].Bytes())
	require.NoError(t, p.PutSignal(keys[1].At(64), m.Slice(64, 0), keys[1].At(0), SignalSet, 1).Wait(ctx))
	require.NoError(t, p.PutSignal(Remote{}, Buffer{}, keys[1].At(0), SignalAdd, 1).Wait(ctx), "no data")
	require.EqualValues(t, 2, mems[1].Bytes()[0])
	for _, m := range mems {
		require.NoError(t, m.Close(), "nothing is held")
	}
}

// A wait for a word soon sees this rank's own stores and puts to it, although a store wakes
// no wait.
func TestWaitSignalSeesOwnStores(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		e := open(t, 2, fabric)[0]
		ctx := testutil.Context(t, testutil.Limit)
		mem, err := e.Alloc(4096)
		require.NoError(t, err)
		b, key := mem.Bytes(), mem.Key()
		change := map[string]func(v uint64) error{
			"store": func(v uint64) error { testutil.Store64(b, v); return nil },
			"put": func(v uint64) error {
				testutil.Store64(b[64:], v)
				return e.Peer(0).Put(key.At(0), mem.Slice(64, 8)).Wait(ctx)
			},
			"atomic": func(v uint64) error { _, err := e.Peer(0).FetchAdd(key.At(0), 1).Wait(ctx); return err },
		}
		var v uint64
		for name, f := range change {
			var best time.Duration = time.Hour
			for range 8 {
				v++
				r := e.AwaitSignal(mem.Slice(0, 8), EQ, v)
				var g errgroup.Group
				g.Go(func() error { _, err := r.Wait(ctx); return err })
				time.Sleep(20 * time.Millisecond) // sleep: so that the engine goes to sleep, mostly
				begin := time.Now()
				require.NoError(t, f(v))
				require.NoError(t, g.Wait())
				best = min(best, time.Since(begin))
			}
			require.Less(t, best, 300*time.Millisecond, name) // of eight, on any machine
		}
	})
}
