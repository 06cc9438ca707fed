package eager

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric/sim"
)

func TestSignBringsACompletion(t *testing.T) {
	t.Parallel()
	for _, mode := range bothModes {
		o := Options{Blocks: 64, BlockSize: 64, Mode: mode}
		a, _ := pair(t, simLinks(sim.Options{}), o, o)
		pos, signed := a.ch.Sign()
		require.False(t, signed, "nothing to sign")
		require.True(t, a.ch.Done(pos), "nor to wait for")
		stage := func() {
			for range 3 {
				res, err := a.ch.Stage(Envelope{}, []byte("x"))
				require.NoError(t, err)
				require.Equal(t, Accepted, res)
			}
		}
		stage()
		done, err := a.ch.Flush()
		require.NoError(t, err)
		require.True(t, done)
		a.poll()
		pos, signed = a.ch.Sign()
		require.False(t, signed)
		require.False(t, a.ch.Done(pos), "a quarter of the ring shares a completion")

		stage()
		pos, signed = a.ch.Sign()
		require.True(t, signed)
		_, err = a.ch.Flush()
		require.NoError(t, err)
		require.False(t, a.ch.Done(pos))
		a.poll()
		require.True(t, a.ch.Done(pos))
	}
}
