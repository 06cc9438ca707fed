//go:build unix

package progress

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
)

// The progress goroutine of an application that drives now and then, and needs it for nothing
// else, ends by dozing for as long as it may at once, so that the links are not armed. One piece of
// work for it brings back short dozes.
func TestNeedlessSleepsBecomeDozes(t *testing.T) {
	e, err := New([]fabric.Link{newIdle(t, 0)}, nothing{}, cpu.SpinPolicy{Polls: 1}, cpu.NoHome, 1)
	require.NoError(t, err)
	defer e.Close()
	l := &loop{eng: e, timer: time.NewTimer(time.Hour), sp: cpu.Spinner{Policy: &e.policy}}

	// next is one sleep that the application ends, and returns how long the goroutine dozed then.
	next := func() time.Duration {
		l.slice = minDoze
		l.sleep()
		require.True(t, l.asleep)
		require.False(t, e.Progress())
		l.asleep = false // as slumber, woken
		e.rest.Store(awake)
		require.True(t, l.round())
		require.Equal(t, e.drives, l.seen, "it has dozed")
		return l.slice / 2
	}
	for range needless - 1 {
		require.Equal(t, minDoze, next())
	}
	require.Equal(t, maxDoze/2, next(), "twice that is bounded")
	require.Equal(t, maxDoze/2, next())
	l.polled(true)
	require.Equal(t, minDoze, next())
}
