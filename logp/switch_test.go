package logp

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSwitches(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(91, 1))
	var found int
	for range 200 {
		p, l := randParams(t, r), randLimits(r)
		n := 1 + r.IntN(8)
		choose := func(size int64) (Mode, bool) {
			d, err := p.Choose(&Batch{Messages: uniform(n, size), Limits: l})
			return d.Mode, err == nil
		}
		ss := p.Switches(&l, n, Registered|DestRegistered, 1<<20)
		last := int64(0)
		for _, s := range ss {
			require.Greater(t, s.Size, last)
			before, ok := choose(s.Size - 1)
			require.True(t, ok)
			require.Equal(t, s.From, before)
			after, ok := choose(s.Size)
			require.True(t, ok)
			require.Equal(t, s.To, after)
			require.NotEqual(t, s.From, s.To)
			last = s.Size
			found++
		}
		// Between two switches nothing changes for longer than is promised.
		for range 20 {
			size := int64(r.IntN(1 << 20))
			got, ok := choose(size)
			if !ok || len(ss) == 0 || size < ss[0].Size {
				continue
			}
			want := ss[0].To
			for _, s := range ss {
				if s.Size <= size {
					want = s.To
				}
			}
			if got != want { // a short stretch, then
				a, _ := choose(size - size/4)
				b, _ := choose(size + size/4)
				require.False(t, a == got && b == got, "missed %v around %d: %v", got, size, ss)
			}
		}
	}
	require.Greater(t, found, 100)
	require.Empty(t, thesis(t).Switches(&Limits{EagerMax: -1}, 1, 0, 100), "nothing is possible")
}
