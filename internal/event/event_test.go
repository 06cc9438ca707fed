//go:build unix

package event

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

type event interface {
	FD() int
	Set()
	Clear()
	Close() error
}

// All kinds that this system supports, including the one that New does not use.
var kinds = map[string]func() (event, error){
	"native": func() (event, error) { return New() },
	"pipe":   func() (event, error) { return newPipe() },
}

func TestReadableFromSetToClear(t *testing.T) {
	for name, open := range kinds {
		t.Run(name, func(t *testing.T) {
			e, err := open()
			require.NoError(t, err)
			readable := func() bool {
				ok, err := Wait(e.FD(), 0)
				require.NoError(t, err)
				return ok
			}
			require.False(t, readable())
			e.Clear() // not set: returns at once
			for range 3 {
				e.Set()
				e.Set() // has no further effect
				require.True(t, readable())
				require.True(t, readable(), "looking does not clear it")
				e.Clear()
				require.False(t, readable())
			}
			// More than the capacity of a pipe: Set never blocks, one Clear is enough.
			for range 1 << 17 {
				e.Set()
			}
			require.True(t, readable())
			e.Clear()
			require.False(t, readable())
			if !testutil.Race {
				require.Zero(t, testing.AllocsPerRun(100, func() { e.Set(); e.Clear() }))
			}
			require.NoError(t, e.Close())
		})
	}
}

func TestSetWaitsForAny(t *testing.T) {
	for name, open := range kinds {
		t.Run(name, func(t *testing.T) {
			var es [3]event
			var fds []int
			for i := range es {
				var err error
				es[i], err = open()
				require.NoError(t, err)
				fds = append(fds, es[i].FD())
			}
			s, err := NewSet(fds...)
			require.NoError(t, err)
			ready, err := s.Wait(0)
			require.NoError(t, err)
			require.False(t, ready, "nothing set: at once")
			start := time.Now()
			ready, err = s.Wait(20 * time.Millisecond)
			require.NoError(t, err)
			require.False(t, ready)
			require.GreaterOrEqual(t, time.Since(start), 19*time.Millisecond, "nothing set: the whole time")
			for i, e := range es {
				go e.Set()
				start := time.Now()
				for ready = false; !ready; { // a signal may end a wait
					ready, err = s.Wait(testutil.Limit)
					require.NoError(t, err)
					require.Less(t, time.Since(start), testutil.Limit)
				}
				ready, err = Wait(e.FD(), 0)
				require.NoError(t, err)
				require.True(t, ready)
				for j := range es {
					require.Equal(t, i == j, s.Readable(j))
				}
				e.Clear()
			}
			require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = s.Wait(0) }))
			require.NoError(t, s.Close())
			for _, e := range es {
				require.NoError(t, e.Close())
			}
			_, err = NewSet(fds[0])
			require.Error(t, err, "a closed descriptor")
		})
	}
}

// A time limit below a millisecond is not rounded up to one: a reader whose peer's writes cause
// no event sleeps for 50 µs.
func TestLimitsOfLessThanAMillisecond(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the system's poll takes milliseconds")
	}
	e, err := New()
	require.NoError(t, err)
	s, err := NewSet(e.FD())
	require.NoError(t, err)
	const limit = 100 * time.Microsecond
	testutil.Eventually(t, testutil.Limit, func() bool {
		begun := time.Now()
		_, err := s.Wait(limit)
		require.NoError(t, err)
		one := time.Since(begun)
		require.GreaterOrEqual(t, one, limit)
		begun = time.Now()
		_, err = Wait(e.FD(), limit)
		require.NoError(t, err)
		return one < time.Millisecond && time.Since(begun) < time.Millisecond
	}, "short waits")
	require.NoError(t, s.Close())
	require.NoError(t, e.Close())
}
