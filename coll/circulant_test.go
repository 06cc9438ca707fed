package coll

import (
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"
)

// In every round each rank sends at most one block, which it has, to the rank that expects it, and
// all have all blocks once after the fewest rounds, for every number of ranks.
func TestCirculantRounds(t *testing.T) {
	sizes := []int{96, 97, 127, 128, 129, 191, 255, 257, 511, 513, 1000, 1023, 1025, 4095, 4097}
	for p := 1; p <= 64; p++ {
		sizes = append(sizes, p)
	}
	for _, p := range sizes {
		q := bits.Len(uint(p - 1))
		counts := []int{1, 2, 3, q, q + 1, 2*q + 1, 29}
		if p > 128 {
			counts = []int{1, 2*q + 3}
		}
		for _, n := range counts {
			if n == 0 {
				continue
			}
			all := make([][]circulantRound, p)
			for v := range all {
				all[v] = circulantRounds(p, v, n)
				if p == 1 {
					require.Empty(t, all[v])
				} else {
					require.Len(t, all[v], n-1+q, "%d ranks, %d blocks", p, n)
				}
			}
			has := make([][]int, p) // by rank and block: the round from which on
			for v := range has {
				has[v] = make([]int, n)
				for i := range has[v] {
					if has[v][i] = 1 << 30; v == 0 {
						has[v][i] = 0
					}
				}
			}
			for i := range all[0] {
				for v := range p {
					r := all[v][i]
					if peer := all[r.to][i]; peer.from != v || peer.recv != r.send || r.send >= n {
						t.Fatalf("%d ranks, %d blocks: in round %d rank %d sends %+v, and %+v is expected", p, n, i, v, r, peer)
					}
					if r.send >= 0 && has[v][r.send] > i {
						t.Fatalf("%d ranks, %d blocks: in round %d rank %d sends block %d, which it has not", p, n, i, v, r.send)
					}
					if r.recv >= 0 {
						if has[v][r.recv] <= i {
							t.Fatalf("%d ranks, %d blocks: in round %d rank %d receives block %d again", p, n, i, v, r.recv)
						}
						has[v][r.recv] = i + 1
					}
				}
			}
			for v := range p {
				for b, from := range has[v] {
					if from > len(all[v]) {
						t.Fatalf("%d ranks, %d blocks: rank %d does not get block %d", p, n, v, b)
					}
				}
			}
		}
	}
}

// The number of blocks is that of the least time in the model that it is derived from.
func TestCirculantDivision(t *testing.T) {
	for _, p := range []int{3, 4, 5, 8, 17, 64} {
		q := bits.Len(uint(p - 1))
		for _, n := range []int{1, 100 << 10, 1 << 20, 64 << 20} {
			time := func(k int) float64 { return float64(k-1+q) * (float64(n)/float64(k) + roundBytes) }
			k := circulantDivision(p, n)
			require.LessOrEqual(t, time(k), 1.001*min(time(max(1, k-1)), time(k+1))+roundBytes, "%d bytes by %d ranks in %d blocks", n, p, k)
		}
	}
	require.Equal(t, 1, circulantDivision(2, 64<<20), "no rank passes data on")
}
