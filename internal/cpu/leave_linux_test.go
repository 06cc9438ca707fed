package cpu

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLeave(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	may := Thread()
	here := current()
	require.Contains(t, may.CPUs(), here)
	moved := false
	for i := 0; i < 1000 && !moved; i++ { // the system may move it back at once
		here = current()
		Leave()
		moved = current() != here
		require.Equal(t, may, Thread())
	}
	require.Equal(t, may.Len() > 1, moved)
	require.Zero(t, testing.AllocsPerRun(100, Leave))
}

// A thread leaves the processor that it shares with one that yields soon, again and again; not
// for yields without another thread, or with one that computes.
func TestSpinnerLeaves(t *testing.T) {
	empty := emptyYield()
	turn, late := 10*empty, 1000*empty
	var s Spinner
	for range meetings - 1 {
		require.False(t, s.meets(turn))
	}
	s.Reset() // each wait meets the other thread once or twice
	require.True(t, s.meets(turn))
	require.False(t, s.meets(turn), "counted anew")
	for range 10 * meetings {
		require.False(t, s.meets(empty))
		require.False(t, s.meets(late))
	}
	for range 10 * meetings {
		require.False(t, s.meets(turn))
		require.False(t, s.meets(empty))
	}
}
