package event

import (
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/internal/testutil"
)

// A raw wait ends as other waits do, and a signal sets the bits.
func TestWaitRaw(t *testing.T) {
	e, err := New()
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	s, err := NewSet(e.FD())
	require.NoError(t, err)
	var word atomic.Uint32
	wait := func(d time.Duration) (ready, interrupted bool) {
		ready, interrupted, err := s.WaitRaw(d, &word, 2)
		require.NoError(t, err)
		return ready, interrupted
	}
	e.Set()
	ready, interrupted := wait(testutil.Limit)
	require.True(t, ready)
	require.False(t, interrupted)
	e.Clear()
	testutil.Eventually(t, testutil.Limit, func() bool { // signals of the runtime may end it
		begun := time.Now()
		ready, interrupted = wait(20 * time.Millisecond)
		require.False(t, ready)
		return !interrupted && time.Since(begun) >= 19*time.Millisecond
	}, "the whole time")

	word.Store(1)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid, thread := os.Getpid(), unix.Gettid()
	over := make(chan struct{})
	signals := make(chan error)
	go func() {
		for {
			select {
			case <-over:
				signals <- nil
				return
			default:
			}
			if err := unix.Tgkill(pid, thread, unix.SIGURG); err != nil { // which the runtime ignores if it is not its own
				signals <- err
				return
			}
			runtime.Gosched()
		}
	}()
	for interrupted = false; !interrupted; {
		ready, interrupted = wait(time.Second)
		require.False(t, ready)
	}
	require.EqualValues(t, 3, word.Load())
	close(over)
	require.NoError(t, <-signals)
}
