package bench

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWaiterYieldsInTheEndAndAllocatesNothing(t *testing.T) {
	var w waiter
	looks := 0
	for w.wait() == 0 {
		looks++
		require.LessOrEqual(t, looks, waitPauses)
	}
	require.Equal(t, 2, w.wait())
	w.reset()
	if multi {
		require.Zero(t, w.wait())
	}
	require.Zero(t, testing.AllocsPerRun(1000, func() { w.wait() }))
}
