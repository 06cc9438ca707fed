package coll

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// keptBytes returns the memory of the messages that a team keeps.
func keptBytes(t *team) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.kept
}

// newPair returns a team of two ranks that rank 1 has completed, and what rank 0 needs for it.
func newPair(t *testing.T, ts []*Team) (mine *team, numbers []uint32, other *Team) {
	t.Helper()
	mine = ts[0].t.s.reserve("pair")
	theirs := ts[1].t.s.reserve("pair")
	numbers = []uint32{mine.number, theirs.number}
	other, err := theirs.s.complete(theirs, []int{0, 1}, numbers)
	require.NoError(t, err)
	return mine, numbers, other
}

// The memory of messages is counted while it is kept: with all that they take, whether they
// came before the members of the team were known, or before their operation was started.
func TestKeptIsCounted(t *testing.T) {
	require.GreaterOrEqual(t, uintptr(earlyCost), reflect.TypeFor[early]().Size()+reflect.TypeFor[key]().Size()+reflect.TypeFor[earlyList]().Size())
	ctx := testutil.Context(t, testutil.Limit)
	ts := worlds(t, job(t, 2, "shm"))
	mine, numbers, other := newPair(t, ts)
	require.NoError(t, other.Force("bcast=binomial"))
	const n = 5
	for i := range n {
		require.NoError(t, Bcast(ctx, other, 1, []int64{int64(i)}))
	}
	each(t, ts, func(_ int, world *Team) error { return Barrier(ctx, world) }) // they have come
	pair, err := mine.s.complete(mine, []int{0, 1}, numbers)
	require.NoError(t, err)
	require.NoError(t, pair.Force("bcast=binomial"))
	require.GreaterOrEqual(t, keptBytes(mine), n*(8+earlyCost))
	for i := range n {
		got := []int64{-1}
		require.NoError(t, Bcast(ctx, pair, 1, got))
		require.Equal(t, int64(i), got[0])
	}
	require.Zero(t, keptBytes(mine))
}

// A rank that floods a team whose members are not known yet ends it if it is a member, and
// harms nobody if it is not. Its messages are not kept.
func TestFloodBeforeMembersAreKnown(t *testing.T) {
	for _, member := range []bool{true, false} {
		ctx := testutil.Context(t, testutil.Limit)
		ts := worlds(t, job(t, 3, "shm"))
		mine, numbers, other := newPair(t, ts)
		from, data := 2, make([]byte, inlineMax)
		if member {
			from = 1
		}
		h := header{call: call{kind: kindBcast, alg: algBinomial}, bytes: inlineMax}
		for range maxUnknown/inlineMax + 1 {
			h.seq++
			mine.take(from, &h, data)
		}
		require.Empty(t, mine.unknown[from].came)
		pair, err := mine.s.complete(mine, []int{0, 1}, numbers)
		if member {
			require.ErrorIs(t, err, ErrProtocol)
			continue
		}
		require.NoError(t, err)
		each(t, []*Team{pair, other}, func(_ int, team *Team) error { return conform(ctx, team, 0, 3, 1) })
	}
}
