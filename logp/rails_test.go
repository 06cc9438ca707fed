package logp

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// best returns the predicted end on the best single rail.
func best(rails []Rail, n int64) float64 {
	b := rails[0].end(float64(n))
	for i := range rails {
		b = min(b, rails[i].end(float64(n)))
	}
	return b
}

func TestCut(t *testing.T) {
	var out [4]int64
	const n = 8 << 20
	two := func(ratio float64) []Rail { return []Rail{{PerByte: 1}, {PerByte: ratio}} }
	for _, ratio := range []float64{1, 2, 4, 8} {
		rails := two(ratio)
		end := Cut(rails, n, 4096, 0, best(rails, n), out[:])
		require.InEpsilon(t, n*ratio/(1+ratio), float64(out[0]), 0.01)
		require.InEpsilon(t, n*ratio/(1+ratio), end, 0.01)
	}
	// A rail with bytes in flight gets fewer, one that is busy for longer than the rest takes gets none.
	rails := []Rail{{PerByte: 1}, {PerByte: 1, Busy: n / 2}}
	Cut(rails, n, 4096, 0, best(rails, n), out[:])
	require.InEpsilon(t, 3*n/4, float64(out[0]), 0.01)
	rails[1].Busy = 2 * n
	require.EqualValues(t, n, Cut(rails, n, 4096, 0, best(rails, n), out[:]))
	require.EqualValues(t, n, out[0])
	// A gain below the cost does not divide.
	rails = two(1)
	require.EqualValues(t, n, Cut(rails, n, 4096, n/2+4096, n, out[:]))
	require.Zero(t, out[1])
	// Neither does a transfer shorter than two pieces.
	Cut(rails, 4096+100, 4096, 0, best(rails, 4096+100), out[:])
	require.EqualValues(t, 4096+100, out[0])
}

// Whatever the rails: the pieces are the whole, aligned, not slower than the first rail alone,
// and without a cost not slower than any single rail, apart from the alignment.
func TestCutProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	const align = 4096
	for range 20_000 {
		rails := make([]Rail, 1+rng.IntN(4))
		slowest := 0.0
		for i := range rails {
			rails[i] = Rail{Busy: rng.Float64() * 1e6 * float64(rng.IntN(2)), Latency: rng.Float64() * 1e5, PerByte: 0.01 + rng.ExpFloat64()}
			slowest = max(slowest, rails[i].PerByte)
		}
		n := 1 + rng.Int64N(1<<uint(1+rng.IntN(32)))
		cost := rng.Float64() * 1e5 * float64(rng.IntN(2))
		alone := rails[0].end(float64(n))
		var out [4]int64
		end := Cut(rails, n, align, cost, alone, out[:])
		var sum int64
		pieces, short := 0, 0
		for _, b := range out {
			sum += b
			require.GreaterOrEqual(t, b, int64(0))
			if b > 0 {
				pieces++
			}
			if b%align != 0 {
				short++
			}
		}
		require.Equal(t, n, sum)
		require.LessOrEqual(t, short, 1)
		require.LessOrEqual(t, end, alone*(1+1e-9))
		if pieces > 1 {
			require.Less(t, end+cost, alone)
		}
		if cost == 0 && n > align {
			require.LessOrEqual(t, end, best(rails, n)*(1+1e-9)+float64(len(rails))*align*slowest)
		}
	}
}

func TestCutDoesNotAllocate(t *testing.T) {
	rails := []Rail{{PerByte: 1}, {PerByte: 2}}
	var out [4]int64
	require.Zero(t, testing.AllocsPerRun(100, func() { Cut(rails, 1<<20, 4096, 0, 1e9, out[:]) }))
}
