package bench

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestTwoCPUs(t *testing.T) {
	t.Parallel()
	cores := map[int][2]string{0: {"0", "0"}, 1: {"0", "0"}, 2: {"0", "1"}, 3: {"1", "0"}, 9: {"1", "4"}}
	core := func(c int) (string, string) { return cores[c][0], cores[c][1] }
	for _, c := range []struct{ allowed, want []int }{
		{[]int{0, 1, 2, 3}, []int{0, 2}}, // not two threads of one core
		{[]int{0, 1}, []int{0, 1}},       // unless there is no other
		{[]int{0, 3}, []int{0, 3}},
		{[]int{3, 9}, []int{3, 9}},
		{[]int{2}, nil},
		{nil, nil},
	} {
		var set unix.CPUSet
		for _, n := range c.allowed {
			set.Set(n)
		}
		require.Equal(t, c.want, twoCPUs(&set, core), c.allowed)
	}
}

func TestPinIsUndone(t *testing.T) {
	var before, during, after unix.CPUSet
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	require.NoError(t, unix.SchedGetaffinity(0, &before))
	undo := pin(1)
	require.NoError(t, unix.SchedGetaffinity(0, &during))
	undo()
	require.NoError(t, unix.SchedGetaffinity(0, &after))
	require.Equal(t, before, after)
	if before.Count() > 1 {
		require.Equal(t, 1, during.Count())
	}
}
