package rma

import (
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// Every mode of messages has a counter, on the sending side.
func TestStatsOfMessages(t *testing.T) {
	for mode, of := range map[string]func(MessageStats) uint64{
		"eager":   func(m MessageStats) uint64 { return m.Eager },
		"gather":  func(m MessageStats) uint64 { return m.Gathered },
		"scatter": func(m MessageStats) uint64 { return m.Fetched + m.Written },
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			ctx := testutil.Context(t, 60*time.Second)
			es := openWith(t, 2, "shm", func(c *Config) { c.Mode = Mode(mode) })
			const n, size = 10, 500
			b := es[0].Peer(1).Batch()
			for i := range n {
				b.Add(uint32(i), testutil.Payload(size, 1, uint64(i)))
			}
			req := b.Send()
			buf := make([]byte, size)
			for i := range n {
				_, err := es[1].Peer(0).RecvTag(uint32(i), buf).Wait(ctx)
				require.NoError(t, err)
			}
			require.NoError(t, req.Wait(ctx))
			s := es[0].Peer(1).Stats()
			require.EqualValues(t, n, of(s.Messages))
			require.EqualValues(t, n, s.Messages.Eager+s.Messages.Gathered+s.Messages.Fetched+s.Messages.Written)
			require.EqualValues(t, 1, s.Batches)
			require.EqualValues(t, n, s.Sends)
			require.EqualValues(t, n*size, s.SentBytes)
			require.Equal(t, 1, s.Rank)
			require.Equal(t, "shm", s.Link)
			require.True(t, s.Messaging)
			require.Positive(t, s.Messages.Memory)
			require.Zero(t, s.Messages.Backlog+s.Queued+s.InFlight)
			require.NoError(t, s.Err)
			s = es[1].Peer(0).Stats()
			require.EqualValues(t, n, s.Receives)
			require.EqualValues(t, n*size, s.RecvBytes)
			require.Zero(t, s.Sends+es[1].Peer(1).Stats().Receives)
		})
	}
}

// A table of modes decides by size and number, on the links that it names, and Explain says
// which rows have decided.
func TestModeTable(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, testutil.Limit)
		kind := map[string]string{"shm": "shm", "tcp": "tcp", "ibv": "verbs"}[fabric]
		es := openWith(t, 2, fabric, func(c *Config) {
			c.ModeTable = kind + ":1x500=scatter,40@1=eager,500=gather,*=scatter;*=eager"
		})
		p := es[0].Peer(1)
		exchange := func(sizes ...int) (why string) {
			b := p.Batch()
			for i, n := range sizes {
				b.Add(uint32(i), testutil.Payload(n, 1, uint64(i)))
			}
			if p.Stats().Messaging {
				var err error
				why, err = b.Explain()
				require.NoError(t, err)
			}
			req := b.Send()
			for i, n := range sizes {
				buf := make([]byte, n)
				_, err := es[1].Peer(0).RecvTag(uint32(i), buf).Wait(ctx)
				require.NoError(t, err)
				require.Equal(t, testutil.Payload(n, 1, uint64(i)), buf)
			}
			require.NoError(t, req.Wait(ctx))
			return why
		}
		exchange(1) // opens the channel
		was := p.Stats().Messages
		why := exchange(30, 30, 400, 600)
		require.Contains(t, why, "row 2 (40@1=eager) for 1, row 3 (500=gather) for 2, row 4 (*=scatter) for 1")
		s := p.Stats().Messages
		require.EqualValues(t, 1, s.Eager-was.Eager)
		require.EqualValues(t, 2, s.Gathered-was.Gathered)
		require.EqualValues(t, 1, s.Fetched+s.Written-was.Fetched-was.Written)
		was = s
		require.Contains(t, exchange(30), "row 1 (1x500=scatter) for 1")
		s = p.Stats().Messages
		require.EqualValues(t, 1, s.Fetched+s.Written-was.Fetched-was.Written)
	})
}

// The engine's counters are the sums of its peers'.
func TestStatsAreSums(t *testing.T) {
	t.Parallel()
	ctx := testutil.Context(t, 60*time.Second)
	es := open(t, 3, "shm")
	mems, keys := share(t, es, 4096)
	for to := range es {
		for range to + 1 {
			require.NoError(t, es[0].Peer(to).Put(keys[to].At(0), mems[0].Slice(0, 64)).Wait(ctx))
			_, err := es[0].Peer(to).FetchAdd(keys[to].At(0), 1).Wait(ctx)
			require.NoError(t, err)
			require.Error(t, es[0].Peer(to).Put(keys[to].At(5000), mems[0].Slice(0, 64)).Wait(ctx), "refused at once: not counted")
		}
		one := es[0].Peer(to).Stats()
		require.EqualValues(t, to+1, one.Puts)
		require.EqualValues(t, to+1, one.Atomics)
		require.EqualValues(t, 64*(to+1), one.PutBytes)
		require.Zero(t, one.Failed)
	}
	s := es[0].Stats()
	require.EqualValues(t, 6, s.Puts)
	require.EqualValues(t, 6, s.Atomics)
	require.Equal(t, 3, s.Size)
	require.Equal(t, 1, s.Regions)
	require.Zero(t, s.PeersDown+s.PeersMessaging)
	require.Zero(t, es[1].Stats().Puts)
}

// The data of accumulates of every form is counted, of one rank to another and to itself.
func TestStatsOfAccumulates(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, testutil.Limit)
		es := open(t, 2, fabric)
		const n = 20000 // several turns of a mapped copy, and several requests
		_, keys := share(t, es, 8*n)
		xs, old := make([]int64, n), make([]int64, n)
		for to := range es {
			p, at := es[0].Peer(to), keys[to].At(0)
			for what, c := range map[string]struct {
				post     func() Request
				put, got uint64
			}{
				"short":       {func() Request { return Accumulate(p, at, Sum, xs[:10]) }, 80, 0},
				"long":        {func() Request { return Accumulate(p, at, Sum, xs) }, 8 * n, 0},
				"of pieces":   {func() Request { return AccumulateV(p, []Span{at.Span(80), at.Span(80)}, Sum, xs[:20]) }, 160, 0},
				"with result": {func() Request { return GetAccumulate(p, old, at, Sum, xs) }, 8 * n, 8 * n},
				"read":        {func() Request { return GetAccumulate(p, old, at, NoOp, nil) }, 0, 8 * n},
			} {
				was := p.Stats()
				require.NoError(t, c.post().Wait(ctx))
				s := p.Stats()
				require.EqualValues(t, 1, s.Accumulates-was.Accumulates)
				require.Equal(t, c.put, s.PutBytes-was.PutBytes, "%s, to rank %d", what, to)
				require.Equal(t, c.got, s.GetBytes-was.GetBytes, "%s, to rank %d", what, to)
			}
		}
	})
}

func TestStatsOfTheGone(t *testing.T) {
	t.Parallel()
	ctx := testutil.Context(t, 60*time.Second)
	es := open(t, 2, "shm")
	mems, keys := share(t, es, 4096)
	require.NoError(t, es[1].Close())
	testutil.Eventually(t, 20*time.Second, func() bool { return es[0].Stats().PeersDown == 1 }, "rank 0 knows that rank 1 is gone")
	require.ErrorIs(t, es[0].Peer(1).Put(keys[1].At(0), mems[0].Slice(0, 8)).Wait(ctx), ErrPeerGone)
	s := es[0].Peer(1).Stats()
	require.ErrorIs(t, s.Err, ErrPeerGone)
	require.EqualValues(t, 1, s.Failed)
	require.NoError(t, es[0].Peer(0).Stats().Err)
	require.NotPanics(t, func() { es[1].Stats() }, "after Close")
}

// add sums every number: a new counter cannot be forgotten.
func TestAddIsComplete(t *testing.T) {
	t.Parallel()
	fill := func(v reflect.Value) {
		for i := range v.NumField() {
			if f := v.Field(i); f.CanInt() {
				f.SetInt(int64(i + 1))
			} else {
				f.SetUint(uint64(i + 1))
			}
		}
	}
	var c, c2 Counts
	fill(reflect.ValueOf(&c).Elem())
	c2.add(&c)
	require.Equal(t, c, c2)
	var m, m2 MessageStats
	fill(reflect.ValueOf(&m).Elem())
	m2.add(&m)
	require.Equal(t, m, m2)
}

// Stats while operations are in flight neither races with them nor stops them.
func TestStatsWhileBusy(t *testing.T) {
	t.Parallel()
	ctx := testutil.Context(t, 60*time.Second)
	es := open(t, 2, "shm")
	mems, keys := share(t, es, 4096)
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 200 {
			if err := es[0].Peer(1).Put(keys[1].At(0), mems[0].Slice(0, 64)).Wait(ctx); err != nil {
				t.Error(err)
				return
			}
		}
	})
	var last uint64
	for last < 200 {
		s := es[0].Stats()
		require.GreaterOrEqual(t, s.Puts, last)
		require.Equal(t, 64*s.Puts, s.PutBytes, "of one moment")
		last = s.Puts
		require.NoError(t, ctx.Err())
	}
	wg.Wait()
}

func BenchmarkStats(b *testing.B) {
	es := open(b, 2, "shm")
	for b.Loop() {
		_ = es[0].Stats()
	}
}
