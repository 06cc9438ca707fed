package eager

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric/sim"
)

// A nudge notifies a peer that is awake, once, behind the messages before it, whatever
// the link's queue refuses.
func TestNudge(t *testing.T) {
	t.Parallel()
	for _, mode := range bothModes {
		for _, full := range []float64{0, 0.9} {
			caps := sim.CapsLike("ibv")
			a, b := pair(t, simLinks(sim.Options{Caps: caps, Seed: 5, QueueFull: full}), Options{Mode: mode, Imm: 3}, Options{Mode: mode, Imm: 77})
			for i, message := range []bool{false, true, false} {
				if message {
					res, err := a.ch.Stage(Envelope{}, []byte("x"))
					require.NoError(t, err)
					require.Equal(t, Accepted, res)
				}
				a.ch.Nudge()
				for n := 0; b.notes == i; n++ {
					require.Less(t, n, 1000)
					_, err := a.ch.Progress(false)
					require.NoError(t, err)
					a.poll()
					b.poll()
				}
				if message {
					var buf [8]byte
					_, ok, err := b.ch.Recv(buf[:])
					require.NoError(t, err)
					require.True(t, ok)
				}
				for range 10 {
					done, err := a.ch.Progress(false)
					require.NoError(t, err)
					require.True(t, done)
					b.poll()
				}
				require.Equal(t, i+1, b.notes)
			}
			require.EqualValues(t, 3, a.ch.Stats().Notifies)
			require.EqualValues(t, 3, b.ch.Stats().Wakeups)
		}
	}
}
