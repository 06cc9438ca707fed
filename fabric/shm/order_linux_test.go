package shm

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

// A read follows the writes before it in its list: of two sides that each write a word and then look
// for the other's, one at least finds it, as if the target executed one request after the other.
func TestReadsFollowWrites(t *testing.T) {
	t.Parallel()
	x, y := pair(t, Options{}, fabric.EndpointOptions{ID: 1})
	src, dst := alloc(t, x.link, 4096), alloc(t, y.link, 4096)
	k := dst.Key()
	const ours, theirs, found = 0, 128, 256
	list := []fabric.WR{
		{Op: fabric.OpWrite, Local: []fabric.SGE{fabric.NewSGE(src.Bytes()[ours:ours+8], src.LKey())}, RemoteAddr: k.Addr + ours, RKey: k.RKey},
		{Op: fabric.OpRead, Local: []fabric.SGE{fabric.NewSGE(src.Bytes()[found:found+8], src.LKey())}, RemoteAddr: k.Addr + theirs, RKey: k.RKey},
	}
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
	seen := make([]uint64, rounds+1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := uint64(1); i <= rounds; i++ {
			meet(&there, &here, i)
			testutil.Store64(dst.Bytes()[theirs:], i)
			seen[i] = testutil.Load64(dst.Bytes()[ours:])
		}
	}()
	lost := make([]uint64, rounds+1)
	for i := uint64(1); i <= rounds; i++ {
		testutil.Store64(src.Bytes()[ours:], i)
		meet(&here, &there, i)
		n, err := x.Post(list)
		if err != nil || n != len(list) {
			t.Errorf("round %d: posted %d, %v", i, n, err)
		}
		lost[i] = testutil.Load64(src.Bytes()[found:])
	}
	<-done
	for i := uint64(1); i <= rounds; i++ {
		require.Truef(t, lost[i] == i || seen[i] == i, "round %d: a read found %d, a load %d", i, lost[i], seen[i])
	}
}
