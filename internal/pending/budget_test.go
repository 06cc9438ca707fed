package pending

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever goroutines take and give at once, no peer and not all together have more than
// they may, and at the end nothing is counted.
func TestBudget(t *testing.T) {
	const peers, most, sum, workers, rounds = 4, 3 * portion, 6 * portion, 8, 300
	var all atomic.Int64
	var b [peers]Budget
	for i := range b {
		b[i].Bound(most, &all, sum)
	}
	var g sync.WaitGroup
	for w := range workers {
		g.Go(func() {
			for i := range rounds {
				p := &b[(w+i)%peers]
				n := 0
				for n < portion+portion/2 && p.take() {
					n++
				}
				for range n {
					p.give()
				}
			}
		})
	}
	g.Wait()
	require.Zero(t, all.Load())
	for i := range b {
		require.Zero(t, b[i].Outstanding())
	}

	for range most {
		require.True(t, b[0].take())
	}
	require.False(t, b[0].take(), "of one peer")
	n := 0
	for b[1].take() {
		n++
	}
	for b[2].take() {
		n++
	}
	for b[3].take() {
		n++
	}
	require.InDelta(t, sum-most, n, peers*portion, "of all")
}

func TestOperationCountsUntilItEnds(t *testing.T) {
	var log []string
	var all atomic.Int64
	var b Budget
	one, two := newWork(&log, "a"), newWork(&log, "b")
	require.True(t, one.Spend(&b), "no bound")
	b.Bound(1, &all, 4)
	require.True(t, one.Spend(&b))
	require.False(t, two.Spend(&b))
	require.Equal(t, 1, b.Outstanding())
	one.Finish()
	require.Zero(t, b.Outstanding())
	require.True(t, two.Spend(&b))
}
