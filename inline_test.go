package rma

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// soon posts operations until one is complete when the call returns. Some are not on any
// link: one of many takes the queue, the first ones find no connection, and the progress
// goroutine may own the link.
func soon(t *testing.T, f func() Request) Request {
	ctx := t.Context()
	for range 100_000 {
		r := f()
		if r.op == nil {
			return r
		}
		require.NoError(t, r.Wait(ctx))
	}
	t.Fatal("never at once")
	return Request{}
}

func TestAtOnce(t *testing.T) {
	es := open(t, 2, "shm")
	mems, keys := share(t, es, 4096)
	p, mine, theirs, ctx := es[0].Peer(1), mems[0], mems[1].Bytes(), t.Context()
	copy(mine.Bytes(), "abcdefgh")

	before := p.Stats()
	r := soon(t, func() Request { return p.Put(keys[1].At(8), mine.Slice(0, 8)) })
	require.Equal(t, "abcdefgh", string(theirs[8:16]))
	require.True(t, r.Done())
	again := r
	require.NoError(t, r.Wait(ctx))
	require.ErrorIs(t, again.Wait(ctx), ErrRequestUsed)
	require.True(t, r.Done())
	_, err := WaitAny(ctx, again, Request{})
	require.ErrorIs(t, err, ErrRequestUsed)

	r = soon(t, func() Request { return p.Get(mine.Slice(64, 8), keys[1].At(8)) })
	require.Equal(t, "abcdefgh", string(mine.Bytes()[64:72]))
	i, err := WaitAny(ctx, again, r)
	require.NoError(t, err)
	require.Equal(t, 1, i)
	require.NoError(t, WaitAll(ctx, again, r))
	require.ErrorIs(t, r.Wait(ctx), ErrRequestUsed)

	calls := 0
	soon(t, func() Request { return p.Put(keys[1].At(0), mine.Slice(0, 1)) }).Then(func(err error) {
		require.NoError(t, err)
		calls++
	})
	require.Equal(t, 1, calls)
	soon(t, func() Request { return p.Put(keys[1].At(0), mine.Slice(0, 1)) }).Forget()
	require.NoError(t, p.Flush().Wait(ctx))

	// Signals, with data and without, and memory of any kind.
	signals := p.Stats().Signals
	copy(mine.Bytes(), "12345678abc")
	r = soon(t, func() Request { return p.PutSignal(keys[1].At(101), mine.Slice(0, 11), keys[1].At(24), SignalSet, 5) })
	require.Equal(t, "12345678abc", string(theirs[101:112]))
	require.Equal(t, uint64(5), testutil.Load64(theirs[24:]))
	require.NoError(t, r.Wait(ctx))
	require.ErrorIs(t, r.Wait(ctx), ErrRequestUsed)
	sum := uint64(5)
	require.NoError(t, soon(t, func() Request { sum += 4; return p.Signal(keys[1].At(24), SignalAdd, 4) }).Wait(ctx))
	require.Equal(t, sum, testutil.Load64(theirs[24:]))
	v, err := es[1].WaitSignal(ctx, mems[1].Slice(24, 8), GE, sum)
	require.NoError(t, err)
	require.Equal(t, sum, v)
	require.GreaterOrEqual(t, p.Stats().Signals, signals+2)
	for _, n := range []int{1, 3, 4, 7, 8, 9, 16, 100, 4096 - 512} { // with every alignment of the end
		for off := 200; off < 208; off++ {
			heap := make([]byte, n)
			testutil.Fill(heap, uint64(n), uint64(off))
			require.NoError(t, soon(t, func() Request { return p.PutBytes(keys[1].At(off), heap) }).Wait(ctx))
			require.NoError(t, testutil.Verify(theirs[off:off+n], uint64(n), uint64(off)))
			back := make([]byte, n)
			require.NoError(t, soon(t, func() Request { return p.GetBytes(back, keys[1].At(off)) }).Wait(ctx))
			require.Equal(t, heap, back)
		}
	}
	for _, r := range []Request{
		p.PutSignal(keys[1].At(0), mine.Slice(0, 8), keys[1].At(4), SignalSet, 1),
		p.PutSignal(keys[1].At(4090), mine.Slice(0, 8), keys[1].At(24), SignalSet, 1),
		p.PutSignal(keys[1].At(0), mine.Slice(4090, 8), keys[1].At(24), SignalSet, 1),
		p.Signal(keys[1].At(24), SignalAdd+1, 1),
		p.PutBytes(keys[1].At(4090), make([]byte, 8)),
	} {
		require.Error(t, r.Wait(ctx))
	}
	require.Equal(t, sum, testutil.Load64(theirs[24:]), "a refused signal changes nothing")

	clear(theirs[:32])
	var held []uint64
	for range 2*64 + 1 { // including one through the queue
		v, err := p.FetchAdd(keys[1].At(16), 3).Wait(ctx)
		require.NoError(t, err)
		held = append(held, v)
	}
	for i, v := range held {
		require.EqualValues(t, 3*i, v)
	}
	v, err = p.CompareSwap(keys[1].At(16), 3*uint64(len(held)), 7).Wait(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 3*len(held), v)
	require.Equal(t, uint64(7), testutil.Load64(theirs[16:]))

	after := p.Stats()
	require.Positive(t, after.Puts-before.Puts)
	require.Equal(t, uint64(len(held)+1), after.Atomics-before.Atomics)
	require.Zero(t, after.Failed)
}

func TestSendAtOnce(t *testing.T) {
	es := open(t, 2, "shm")
	mems, _ := share(t, es, 4096)
	p, q, ctx := es[0].Peer(1), es[1].Peer(0), t.Context()
	exchange := func(msg []byte) Request {
		recv := q.RecvTag(5, make([]byte, 64))
		r := p.SendTag(5, msg)
		n, err := recv.Wait(ctx)
		require.NoError(t, err)
		require.Equal(t, len(msg), n)
		return r
	}
	require.NoError(t, exchange([]byte("the first makes the channel")).Wait(ctx))
	before := p.Stats().Sends
	require.NoError(t, soon(t, func() Request { return exchange([]byte("hello")) }).Wait(ctx))
	require.Positive(t, p.Stats().Sends-before)

	// In order, also with operations that are too long to complete inline.
	buf := make([]byte, 100_000)
	for i := range 200 {
		n := []int{8, 0, 3000, 100, 90_000}[i%5]
		msg := mems[0].Bytes()[:min(n, 4096)]
		if n > len(msg) {
			msg = buf[:n]
		}
		if n > 0 {
			msg[0], msg[n-1] = byte(i), byte(i)
		}
		sent := p.SendTag(6, msg)
		got := make([]byte, n)
		k, err := q.RecvTag(6, got).Wait(ctx)
		require.NoError(t, err)
		require.Equal(t, n, k)
		if n > 0 {
			require.Equal(t, []byte{byte(i), byte(i)}, []byte{got[0], got[n-1]})
		}
		require.NoError(t, sent.Wait(ctx))
	}
}
