package fifo

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A ring behaves like a slice with insertions at its end, and removals.
func TestRingAgainstSlice(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	for _, capacity := range []int{1, 2, 3, 8} {
		r := NewRing[*int](capacity)
		var want []*int
		for range 1000 {
			switch v := new(int); {
			case rng.IntN(2) == 0 && len(want) < capacity:
				r.Push(v)
				want = append(want, v)
			case rng.IntN(4) == 0:
				if len(want) > 0 && rng.IntN(4) > 0 {
					v = want[rng.IntN(len(want))]
				}
				i := slices.Index(want, v)
				require.Equal(t, i >= 0, r.Remove(func(x **int) bool { return *x == v }))
				if i >= 0 {
					want = slices.Delete(want, i, i+1)
				}
			case len(want) > 0:
				require.Same(t, want[0], *r.Front())
				require.Same(t, want[0], r.Pop())
				want = want[1:]
			}
			require.Equal(t, len(want), r.Len())
			held := 0
			for _, p := range r.q {
				if p != nil {
					held++
				}
			}
			require.Equal(t, len(want), held, "what was taken out is not kept alive")
		}
	}
}

func TestRingMisuse(t *testing.T) {
	t.Parallel()
	r := NewRing[int](1)
	require.Panics(t, func() { r.Pop() })
	require.Panics(t, func() { r.Front() })
	r.Push(1)
	require.Panics(t, func() { r.Push(2) })
	require.Equal(t, 1, r.Pop())
}

// A queue behaves like an unbounded slice.
func TestQueueAgainstSlice(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 1))
	var q Queue[int]
	var want []int
	require.Panics(t, func() { q.Front() })
	require.Panics(t, func() { q.Pop() })
	for i := range 3000 {
		if rng.IntN(5) < 2 && len(want) > 0 {
			require.Equal(t, want[0], q.Pop())
			want = want[1:]
		} else {
			q.Push(i)
			want = append(want, i)
		}
		require.Equal(t, len(want), q.Len())
		if len(want) > 0 {
			require.Equal(t, want[0], *q.Front())
		}
	}
	require.Greater(t, q.Len(), 64, "it has grown")
}

// Values inserted in any order are removed in the order of their keys, those with equal
// keys in the order of insertion.
func TestQueueInserts(t *testing.T) {
	t.Parallel()
	type item struct{ key, n int }
	rng := rand.New(rand.NewPCG(3, 1))
	var q Queue[item]
	var want []item
	for n := range 2000 {
		if rng.IntN(3) == 0 && len(want) > 0 {
			require.Equal(t, want[0], q.Pop())
			want = want[1:]
			continue
		}
		x := item{rng.IntN(50), n}
		q.Insert(x, func(y *item) bool { return y.key > x.key })
		i := len(want)
		for i > 0 && want[i-1].key > x.key {
			i--
		}
		want = slices.Insert(want, i, x)
		require.Equal(t, len(want), q.Len())
	}
	for _, x := range want {
		require.Equal(t, x, q.Pop())
	}
}

func TestNothingAllocates(t *testing.T) {
	r := NewRing[uint16](8)
	turn := func() {
		for i := range 8 {
			r.Push(uint16(i))
		}
		for range 8 {
			r.Pop()
		}
	}
	turn() // it grows
	require.Zero(t, testing.AllocsPerRun(100, turn))
}

func BenchmarkRing(b *testing.B) {
	r := NewRing[uint16](100)
	r.Push(1)
	for b.Loop() {
		r.Push(r.Pop())
	}
}
