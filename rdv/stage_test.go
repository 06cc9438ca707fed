package rdv

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric/sim"
)

// Spans never overlap, are never refused while everything is back, and come to
// nothing when all are. However many were taken, each has one of the positions.
func TestStaging(t *testing.T) {
	t.Parallel()
	l, err := sim.NewNetwork(sim.Options{}).NewLink()
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	const size = 64 // so small that what just fits, and just does not, is common
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var s staging
		require.NoError(t, s.open(l, nil, size, 1+rng.IntN(20)))
		owner := make([]int, size) // position + 1 of the span that has the byte
		held := map[int][2]int{}
		var order []int
		taken, refused := 0, 0
		for range 3000 {
			if rng.IntN(2) == 0 {
				n := 1 + rng.IntN(size/2)
				at, mem, ok := s.take(n)
				if !ok {
					refused++
					require.NotEmpty(t, held, "%d bytes refused of an empty stage", n)
					continue
				}
				taken++
				require.Len(t, mem, n)
				require.Less(t, at, len(s.spans))
				off := s.spans[at].off
				require.Same(t, &s.mem[off], &mem[0])
				for i := range mem {
					if owner[off+i] != 0 {
						t.Fatalf("byte %d has two owners", off+i)
					}
					owner[off+i] = at + 1
				}
				held[at] = [2]int{off, n}
				order = append(order, at)
				continue
			}
			if len(order) == 0 {
				continue
			}
			k := rng.IntN(len(order))
			at := order[k]
			order = append(order[:k], order[k+1:]...)
			h := held[at]
			delete(held, at)
			clear(owner[h[0]:][:h[1]])
			s.give(at)
		}
		for _, at := range order {
			s.give(at)
		}
		require.Zero(t, s.n)
		require.Positive(t, taken)
		require.Positive(t, refused)
		require.NoError(t, s.close())
	}
}

// The sum is the message; nothing exceeds the bound; chunks grow by the ratio.
func TestGrowth(t *testing.T) {
	t.Parallel()
	sizes := func(g growth, left int) (out []int) {
		for left > 0 {
			n := g.take(left)
			require.Positive(t, n)
			require.LessOrEqual(t, n, g.most)
			out = append(out, n)
			left -= n
		}
		require.Zero(t, left)
		return out
	}
	const k = 1 << 10
	require.Equal(t, []int{64 * k, 128 * k, 256 * k, 512 * k, 1024 * k, 64 * k}, sizes(newGrowth(64*k, 1024*k, 0, 0), 2048*k))
	require.Equal(t, []int{64 * k, 192 * k, 300 * k, 20 * k}, sizes(newGrowth(64*k, 300*k, 30e9, 10e9), 576*k))
	require.Equal(t, []int{64 * k, 64 * k, 65 * k}, sizes(newGrowth(64*k, 1024*k, 5e9, 10e9), 193*k), "slow copies do not grow")
	require.Equal(t, []int{64 * k, 512 * k}, sizes(newGrowth(64*k, 1024*k, 1e12, 1), 576*k), "the ratio is bounded")
	require.Equal(t, []int{70 * k}, sizes(newGrowth(64*k, 1024*k, 0, 0), 70*k), "no crumb")
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		sizes(newGrowth(1+rng.IntN(9000), 400+rng.IntN(9000), rng.Float64()*5, rng.Float64()), 1+rng.IntN(100000))
	}
}
