package initiator

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/onesided"
)

// Of many waits, those whose turn it is and the latest end in one step, also where they are partly
// the same.
func TestManyWaitsEndInOneStep(t *testing.T) {
	const least = 2*awaitTurn + 1 // that are checked in turns
	a, _ := pair(t, sim.Options{})
	mem := a.region.Bytes()
	for n := least; n <= 2*least; n++ {
		for turns := range n/awaitTurn + 1 {
			clear(mem[:8*n])
			early, ended, first := false, 0, 0
			a.Prog.Do(func() {
				w := &a.awaits
				w.next, w.all = 0, false
				for i := range n {
					a.region.Hold()
					o := New(&a.Queue, Await)
					o.Word(a.region, mem[8*i:8*i+8], onesided.Uint64, onesided.GE, 1, nil)
					o.Then(func(error) { ended++ })
					o.Start()
				}
				for range turns {
					early = w.step() || early
				}
				for i := range n {
					onesided.Store64(mem[8*i:], 1)
				}
				w.step()
				first = ended
				w.look()
			})
			require.False(t, early)
			require.Equal(t, 2*awaitTurn, first, "%d waits, %d turns", n, turns)
			require.Equal(t, n, ended)
		}
	}
	require.Zero(t, a.region.Holds())
}
