package logp

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a batch is beyond the caches is a matter of the batch, not of the mode or
// the size of its messages.
func TestMemory(t *testing.T) {
	t.Parallel()
	p := thesis(t)
	// 0.01 ns a byte in the nearest cache, 0.02 in the next, 0.1 in memory.
	far := mustCurve(t, Point{0, 0, 1}, Point{1 << 15, 0, 1}, Point{1 << 20, 0.01 * (1<<20 - 1<<15), 1}, Point{1 << 22, 0.3e6, 1})
	with := *p
	with.Memory = far
	for m := range Mode(NumModes) {
		for _, ms := range [][]Message{uniform(1, 1<<21), uniform(32, 1<<16), uniform(512, 4096)} {
			b := &Batch{Messages: ms, Limits: plain()}
			c, err := with.Cost(b, m)
			require.NoError(t, err)
			require.InDelta(t, far.At(1<<21), c.Terms[TermMemory], 1e-6)
			require.InDelta(t, total(t, p, b, m)+far.At(1<<21), c.Total(), 1e-6)
		}
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	// Limited by operations, then by bytes: nothing is the memory's.
	c := mustCurve(t, Point{0, 0, 1}, Point{4096, 0, 1}, Point{1 << 20, 0.1 * (1<<20 - 4096), 1})
	near, far, err := c.Split(0.1 * 4096)
	require.NoError(t, err)
	require.False(t, far.Known())
	require.Equal(t, c, near)
	// The thesis's cards are of that kind.
	p := thesis(t)
	_, far, err = p.Os.Split(p.G)
	require.NoError(t, err)
	require.False(t, far.Known())
	// 0.02 ns a byte up to 64 KiB, 0.1 beyond.
	c = mustCurve(t, Point{0, 0, 1}, Point{1 << 16, 0.02 * (1 << 16), 1}, Point{1 << 20, 0.02*(1<<16) + 0.1*(1<<20-1<<16), 1})
	near, far, err = c.Split(0)
	require.NoError(t, err)
	for _, x := range []int64{0, 100, 1 << 16, 1 << 18, 1 << 20, 1 << 24} {
		require.InDelta(t, 0.02*float64(x), near.At(x), 1e-6*float64(x))
		require.InDelta(t, 0.08*max(float64(x-1<<16), 0), far.At(x), 1e-6*float64(x))
	}
	_, far, err = Curve{}.Split(10)
	require.NoError(t, err)
	require.False(t, far.Known())
}

// The two parts make up the whole; far is convex and begins at 0; and of what is
// near, one operation never takes longer than several of as many bytes in all.
func TestSplitProperties(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(94, 1))
	off, points := 0.0, 0.0
	for range cases(500) {
		c, fixed := grid(t, r, 600*r.Float64(), 0.3), 400*r.Float64()
		ps := c.Points()
		for i := range ps {
			ps[i].Conf = 1
		}
		c = mustCurve(t, ps...)
		near, far, err := c.Split(fixed)
		require.NoError(t, err)
		require.Zero(t, far.At(0))
		require.True(t, monotone(near))
		for _, q := range c.Points() {
			require.LessOrEqual(t, far.At(q.Size), q.NS+fixed+1e-6)
			off += math.Abs((near.At(q.Size)+far.At(q.Size)+fixed)/(q.NS+fixed) - 1)
			points++
		}
		for range 50 {
			x, y := randSize(r), randSize(r)
			require.GreaterOrEqual(t, far.At(x+y)*(1+1e-9)+1e-6, far.At(x)+far.At(y))
		}
		last := math.Inf(1)
		for _, q := range near.Points() {
			if far.Known() && q.Size > 0 {
				rate := (q.NS + fixed) / float64(q.Size)
				require.LessOrEqual(t, rate, last*(1+1e-9), "%d bytes: cutting would pay", q.Size)
				last = rate
			}
		}
	}
	require.Less(t, off/points, 0.1, "of these wild curves, most of each point is left")
}

// A point that is hardly known does not make all others look slow.
func TestSplitDoubts(t *testing.T) {
	t.Parallel()
	line := func(conf float64) Curve {
		return mustCurve(t, Point{0, 0, 1}, Point{4096, 100, conf}, Point{8192, 1600, 1}, Point{1 << 20, 0.2 * (1 << 20), 1})
	}
	_, far, err := line(1).Split(0)
	require.NoError(t, err)
	require.Greater(t, far.At(1<<20), 100_000.0)
	_, far, err = line(0.0001).Split(0)
	require.NoError(t, err)
	require.Less(t, far.At(1<<20), 10_000.0)
}
