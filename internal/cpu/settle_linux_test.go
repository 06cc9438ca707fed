package cpu

import (
	"math"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// A thread moves to each processor that it may use, and may then use the same as before.
func TestSettle(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	may := Thread()
	require.Positive(t, may.Len())
	for _, home := range may.CPUs() {
		for there := false; !there; { // the kernel may move it on at once
			settled := make(chan bool)
			go func() {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				settle(home, math.MaxInt64)
				settled <- current() == home
			}()
			there = <-settled
		}
		require.False(t, settle(home, 0), "it returns")
		require.Equal(t, may, Thread())
	}
	require.False(t, settle(MaxCPU-1, math.MaxInt64), "which it may not use, or runs on")
	require.False(t, settle(NoHome, math.MaxInt64))
	require.Equal(t, may, Thread())
}
