package shm

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

// A read, or an atomic that changes nothing, follows the writes before it in its list: of two sides that each write a
// word and then look for the other's, one at least finds it, as if the target executed one request after the other.
func TestReadsFollowWrites(t *testing.T) {
	t.Parallel()
	for _, op := range []fabric.Op{fabric.OpRead, fabric.OpCompareSwap} {
		t.Run(op.String(), func(t *testing.T) { readsFollowWrites(t, op) })
	}
}

func readsFollowWrites(t *testing.T, op fabric.Op) {
	x, y := pair(t, Options{}, fabric.EndpointOptions{ID: 1})
	src, dst := alloc(t, x.link, 4096), alloc(t, y.link, 4096)
	k := dst.Key()
	const ours, theirs, found = 0, 128, 256
	list := []fabric.WR{write(src, ours, 8, k, ours), write(src, found, 8, k, theirs)}
	for i := range list {
		list[i].Flags = 0
	}
	list[1].Op, list[1].Compare = op, 1<<63 // which the word never is
	rounds := uint64(testutil.Times(50_000))
	var here, there atomic.Uint64 // rounds that the two sides have begun
	meet := func(mine, other *atomic.Uint64, i uint64) {
		mine.Store(i)
		for n := 0; other.Load() < i; n++ {
			if n > 1000 {
				runtime.Gosched()
			}
		}
	}
	seen, lost := make([]uint64, rounds+1), make([]uint64, rounds+1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := uint64(1); i <= rounds; i++ {
			meet(&there, &here, i)
			testutil.Store64(dst.Bytes()[theirs:], i)
			seen[i] = testutil.Load64(dst.Bytes()[ours:])
		}
	}()
	var taken int
	var wrong error
	for i := uint64(1); i <= rounds; i++ {
		testutil.Store64(src.Bytes()[ours:], i)
		meet(&here, &there, i)
		n, err := x.Post(list)
		taken, wrong = taken+n, errors.Join(wrong, err)
		lost[i] = testutil.Load64(src.Bytes()[found:])
	}
	<-done
	require.NoError(t, wrong)
	require.Equal(t, len(list)*int(rounds), taken)
	for i := uint64(1); i <= rounds; i++ {
		require.Truef(t, lost[i] == i || seen[i] == i, "round %d: a request found %d, a load %d", i, lost[i], seen[i])
	}
}
