package shm

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

// With many endpoints the silent ones are looked at less often, yet none is
// forgotten and none that has something to say itself has to wait.
func TestColdEndpoints(t *testing.T) {
	a, b := openPair(t, Options{})
	const count = 5 * warmFew
	var xs, ys []*endpoint
	for i := range uint32(count) {
		x, y := pairOn(t, a, b, fabric.EndpointOptions{ID: i})
		xs, ys = append(xs, x), append(ys, y)
	}
	la, lb := alloc(t, a, 64), alloc(t, b, 64)
	cool := func() {
		for range coldAfter + coldTurns {
			poll(t, a)
			poll(t, b)
		}
		for i := range a.heat {
			require.Zero(t, a.heat[i])
		}
	}
	wr := write(la, 0, 8, lb.Key(), 0)
	wr.Flags |= fabric.FlagNotify
	var cs [4]fabric.Completion
	for i := range count {
		cool()
		post(t, xs[i], wr)
		require.Equal(t, 1, a.Poll(cs[:]), "own completions are reported at once")
		require.EqualValues(t, i, cs[0].EP)
		n, polls := 0, 0
		for ; n == 0; polls++ {
			n = b.Poll(cs[:])
		}
		require.LessOrEqual(t, polls, coldTurns)
		require.Equal(t, fabric.Completion{EP: uint32(i), Op: fabric.OpNotify, Bytes: 8}, cs[0])
	}
	// Whoever sleeps finds what woke him at once.
	for i := range count {
		cool()
		sleepOn(t, b)
		post(t, xs[i], wr)
		b.Disarm()
		require.Equal(t, 1, b.Poll(cs[:]))
		require.Equal(t, 1, a.Poll(cs[:]))
	}
	// Going down is no less noticed, and the list closes its gaps.
	for i := 0; i < count; i += 3 {
		require.NoError(t, xs[i].Close())
		require.EqualValues(t, i, await(t, b, a).EP)
		require.NoError(t, ys[i].Close())
	}
	for i := 1; i < count; i += 3 {
		post(t, xs[i], wr)
		require.EqualValues(t, i, await(t, a).EP)
		require.EqualValues(t, i, await(t, b).EP)
	}
	poll(t, b)
	require.Len(t, a.eps, len(b.eps))
	for i, ep := range a.eps {
		require.Equal(t, i, ep.index)
		require.True(t, ep.isUp())
	}
}

// A link ends the endpoints of many peers that go at once, more than it takes events at a time.
func TestManyPeersGoAtOnce(t *testing.T) {
	a, b := openPair(t, Options{})
	var eps []*endpoint
	for range 3*len(a.events) + 1 {
		x, _ := pairOn(t, a, b, fabric.EndpointOptions{})
		eps = append(eps, x)
	}
	require.NoError(t, b.Close())
	a.keepHouse() // before Poll visits them, as if they were cold
	down := 0
	testutil.Eventually(t, testutil.Limit, func() bool {
		var cs [8]fabric.Completion
		for _, c := range cs[:a.Poll(cs[:])] {
			require.NotEqual(t, fabric.StatusOK, c.Status)
			down++
		}
		return down == len(eps)
	}, "%d endpoints to go down", len(eps))
	for _, ep := range eps {
		require.False(t, ep.isUp())
	}
}
