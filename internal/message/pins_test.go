package message

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/linktest"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/mr"
)

// pinPair joins channels that announce everything, each with pins of limit bytes.
func pinPair(t *testing.T, limit int64) (a, b *side) {
	o := Options{Policy: policies["scatter"], Pinned: limit}
	return pair(t, simLinks(sim.Options{}), 64, o, o)
}

// pass sends data to buf and waits for both ends.
func pass(t *testing.T, a, b *side, data, buf []byte) {
	var sent, got note
	b.ch.Recv(&In{Buf: buf, Any: true, Done: &got})
	out := &Out{Data: data, Done: &sent}
	a.ch.Send(out)
	for i := 0; sent.n == 0 || got.n == 0; i++ {
		require.Less(t, i, 10000)
		turns(t, 1, a, b)
	}
	require.NoError(t, sent.err)
	require.NoError(t, got.err)
	require.Equal(t, data, buf[:got.size])
	out.Data = nil // as its owner does: the channel may keep out for a while
}

// Memory that comes again is registered already, also parts of it, and the path
// of its messages does not allocate.
func TestPinsHit(t *testing.T) {
	a, b := pinPair(t, 0)
	data, buf := make([]byte, 50000), make([]byte, 60000)
	testutil.Fill(data, 1, 0)
	for i := range 100 {
		pass(t, a, b, data[i:len(data)-i], buf)
	}
	for _, s := range []*side{a, b} {
		st := s.ch.pins.Stats()
		require.Equal(t, uint64(1), st.Misses)
		require.GreaterOrEqual(t, st.Hits, uint64(99))
		require.Equal(t, 1, st.Entries)
	}
	var sent, got note
	var in In
	var out Out
	round := func() {
		sent.n, got.n = 0, 0
		in = In{Buf: buf, Any: true, Done: &got}
		out = Out{Data: data, Done: &sent}
		b.ch.Recv(&in)
		a.ch.Send(&out)
		for sent.n == 0 || got.n == 0 {
			if a.turn() != nil || b.turn() != nil {
				t.Fatal(a.ch.Err(), b.ch.Err())
			}
		}
	}
	round()
	if !testutil.Race {
		require.Zero(t, testutil.AllocsPerRun(20, round))
	}
}

// More memory in flight than may be kept: all of it is transferred, the limit
// holds, and nothing in use is evicted.
func TestPinsEvict(t *testing.T) {
	t.Parallel()
	const n, size, limit = 40, 20000, 5*20000 + 100
	a, b := pinPair(t, limit)
	var sent, got note
	var datas, bufs [n][]byte
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 3 {
		sent.n, got.n = 0, 0
		for i := range n {
			datas[i], bufs[i] = make([]byte, size), make([]byte, size)
			testutil.Fill(datas[i], uint64(round), uint64(i))
			b.ch.Recv(&In{Buf: bufs[i], Tag: uint32(i), Done: &got})
		}
		for _, i := range rng.Perm(n) {
			a.ch.Send(&Out{Data: datas[i], Tag: uint32(i), Done: &sent})
			turns(t, rng.IntN(3), a, b)
		}
		for i := 0; sent.n < n || got.n < n; i++ {
			require.Less(t, i, 100000)
			turns(t, 1, a, b)
			require.LessOrEqual(t, a.ch.pins.Stats().Bytes, int64(limit))
			require.LessOrEqual(t, b.ch.pins.Stats().Bytes, int64(limit))
		}
		require.NoError(t, sent.err)
		require.NoError(t, got.err)
		require.Equal(t, datas, bufs)
	}
	st := b.ch.pins.Stats()
	require.Positive(t, st.Evictions)
	require.Positive(t, st.Once)
	// What is left is found by the links' Close, in pair's clean-up.
}

// watched is memory of the Go heap that says when it was collected.
func watched(n int, gone *atomic.Int32) []byte {
	p := new([1 << 16]byte)
	runtime.AddCleanup(p, func(k *atomic.Int32) { k.Add(1) }, gone)
	return p[:n]
}

func collected(t *testing.T, gone *atomic.Int32, want int32) {
	require.Eventually(t, func() bool { runtime.GC(); return gone.Load() == want }, testutil.Limit, time.Millisecond)
}

// What is kept is not collected, whoever has forgotten it; what was evicted,
// invalidated or closed is.
func TestPinsAndCollector(t *testing.T) {
	t.Parallel()
	a, b := pinPair(t, 3<<16)
	var gone atomic.Int32
	buf := make([]byte, 1<<16)
	pass(t, a, b, watched(1<<16, &gone), buf)
	for range 3 {
		runtime.GC()
	}
	require.Zero(t, gone.Load())
	for range 9 { // room for three
		pass(t, a, b, watched(1<<16, &gone), buf)
	}
	collected(t, &gone, 7)
	func() {
		mine := watched(1<<16, &gone)
		pass(t, a, b, mine, buf) // and one more is evicted
		collected(t, &gone, 8)
		require.NoError(t, a.ch.pins.Invalidate(mine))
		require.Equal(t, 2, a.ch.pins.Stats().Entries)
		runtime.KeepAlive(mine)
	}()
	collected(t, &gone, 9)
	require.NoError(t, a.ep.Close())
	require.NoError(t, a.ch.Close())
	collected(t, &gone, 11)
}

// Messages from fresh memory while the collector runs all the time.
func TestPinsUnderCollector(t *testing.T) {
	t.Parallel()
	a, b := pinPair(t, 1<<18)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	}()
	for i := range 100 {
		data, buf := make([]byte, 1000+i*400), make([]byte, 50000)
		testutil.Fill(data, uint64(i), 0)
		pass(t, a, b, data, buf)
	}
	close(stop)
	<-done
	require.Positive(t, a.ch.pins.Stats().Evictions)
}

// Memory in use cannot be invalidated.
func TestPinsInvalidateInUse(t *testing.T) {
	t.Parallel()
	a, b := pinPair(t, 0)
	var sent, got note
	data := make([]byte, 30000)
	a.ch.Send(&Out{Data: data, Done: &sent})
	turns(t, 3, a, b)
	require.ErrorIs(t, a.ch.pins.Invalidate(data[100:200]), mr.ErrInUse)
	require.NoError(t, a.ch.pins.Invalidate(make([]byte, 10)))
	require.NoError(t, a.ch.pins.Invalidate(nil))
	b.ch.Recv(&In{Buf: make([]byte, 30000), Done: &got})
	turns(t, 10, a, b)
	require.Equal(t, 1, sent.n)
	require.NoError(t, a.ch.pins.Invalidate(data[100:200]))
	require.Zero(t, a.ch.pins.Stats().Entries)
}

// Pins that several channels of a link share stay when one of them closes.
func TestPinsShared(t *testing.T) {
	t.Parallel()
	link, _ := simLinks(sim.Options{})(t)
	p, err := NewPins(link, 1<<20)
	require.NoError(t, err)
	mem := make([]byte, 5000)
	x, err := p.take(mem, sourceRights)
	require.NoError(t, err)
	y, err := p.take(mem[10:100], sourceRights)
	require.NoError(t, err)
	require.Equal(t, x.rkey, y.rkey)
	p.release(&x)
	p.release(&x)
	require.ErrorIs(t, p.Close(), mr.ErrInUse)
	p.release(&y)
	require.NoError(t, p.Close())
	require.NoError(t, p.Close())
}

// A source that the link does not register is copied, chunk by chunk; the
// numbers go on.
func TestUnregistrable(t *testing.T) {
	t.Parallel()
	a, b := pinPair(t, 0)
	require.NoError(t, a.ch.pins.Close())
	dom, err := mr.NewDomain(mr.Rail{Link: refusing{a.link}})
	require.NoError(t, err)
	a.ch.pins.dom, a.ch.pins.cache = dom, nil
	staged(t, a, b)
}

// By Options.Staged sources are copied although the link would register them, on every link.
func TestStaged(t *testing.T) {
	t.Parallel()
	for link, open := range linktest.Real() {
		t.Run(link, func(t *testing.T) {
			t.Parallel()
			o := Options{Policy: policies["scatter"], Staged: true}
			a, b := pair(t, open, 64, o, Options{Policy: policies["scatter"]})
			staged(t, a, b)
			require.Zero(t, a.ch.pins.Stats().Misses)
		})
	}
}

// staged sends messages from a to b that a copies, before and after their receives.
func staged(t *testing.T, a, b *side) {
	var sent, got note
	data := [2][]byte{make([]byte, 300000), make([]byte, 40000)}
	bufs := [3][]byte{make([]byte, 300000), make([]byte, 40000), make([]byte, 8)}
	testutil.Fill(data[0], 1, 0)
	testutil.Fill(data[1], 2, 0)
	for _, first := range []bool{false, true} {
		sent.n, got.n = 0, 0
		for _, d := range data {
			a.ch.Send(&Out{Data: d, Done: &sent})
		}
		a.ch.Send(&Out{Data: []byte("after"), Done: &sent})
		if !first {
			turns(t, 5, a, b)
		}
		for _, d := range bufs {
			b.ch.Recv(&In{Buf: d, Done: &got})
		}
		for i := 0; sent.n < 3 || got.n < 3; i++ {
			require.Less(t, i, 10000)
			turns(t, 1, b, a)
		}
		require.NoError(t, sent.err)
		require.NoError(t, got.err)
		require.Equal(t, data[:], bufs[:2])
		require.Equal(t, "after", string(bufs[2][:5]))
	}
	require.Equal(t, uint64(6), a.ch.Stats().Copied)
}

// refusing is a link that registers nothing more.
type refusing struct{ fabric.Link }

func (refusing) Register([]byte, fabric.Access) (fabric.Region, error) { return nil, mr.ErrLimit }
