package eager

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/offheap"
)

// The pages of a sparse channel come as they are used, those of others when the channel is
// opened and connected, and when it returns to its first ring.
func TestSparse(t *testing.T) {
	t.Parallel()
	// One fault may provide a huge page, also for memory beside that accessed.
	_ = unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0)
	const blocks = 256
	o := Options{Blocks: blocks, BlockSize: offheap.PageSize, Steps: []Step{{Blocks: 2 * blocks, BlockSize: offheap.PageSize}}}
	o.MaxPeerRing = 2 * blocks * offheap.PageSize
	sparse := o
	sparse.Sparse = true
	for name, c := range map[string]struct {
		o           Options
		least, most int64 // page faults
	}{"sparse": {sparse, blocks / 2, 2 * blocks}, "not": {o, 0, blocks / 8}} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, simLinks(sim.Options{}), c.o, c.o)
			access := func(what string, mem []byte) {
				runtime.LockOSThread()
				var before, after unix.Rusage
				require.NoError(t, unix.Getrusage(unix.RUSAGE_THREAD, &before))
				for i := offheap.PageSize; i < len(mem); i += offheap.PageSize {
					mem[i] = 0
				}
				require.NoError(t, unix.Getrusage(unix.RUSAGE_THREAD, &after))
				runtime.UnlockOSThread()
				faults := after.Minflt - before.Minflt
				require.GreaterOrEqual(t, faults, c.least, what)
				require.LessOrEqual(t, faults, c.most, what)
			}
			access("ring", a.ch.in)
			access("mirror", a.ch.out)
			a.ch.Want(o.MaxPeerRing)
			settleRings(t, a, b)
			a.ch.Shrink()
			settleRings(t, a, b)
			moves, _ := a.ch.Moved()
			require.EqualValues(t, 2, moves)
			access("mirror of the first ring again", a.ch.out)
		})
	}
}
