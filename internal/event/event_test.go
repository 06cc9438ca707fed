//go:build unix

package event

import (
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

type set interface {
	Wait(time.Duration) error
	Close() error
}

// All kinds that this system supports, including those that New does not use.
var kinds = map[string]struct {
	event func() (event, error)
	set   func(...int) (set, error)
}{
	"native": {func() (event, error) { return New() }, func(fds ...int) (set, error) { return NewSet(fds...) }},
	"poll":   {func() (event, error) { return newPipe() }, func(fds ...int) (set, error) { return newPollSet(fds...) }},
}

func TestReadableFromSetToClear(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			e, err := k.event()
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
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			var es [3]event
			var fds []int
			for i := range es {
				var err error
				es[i], err = k.event()
				require.NoError(t, err)
				fds = append(fds, es[i].FD())
			}
			s, err := k.set(fds...)
			require.NoError(t, err)
			require.NoError(t, s.Wait(0), "nothing set: at once")
			start := time.Now()
			require.NoError(t, s.Wait(20*time.Millisecond))
			require.GreaterOrEqual(t, time.Since(start), 19*time.Millisecond, "nothing set: the whole time")
			for _, e := range es {
				go e.Set()
				start := time.Now()
				require.NoError(t, s.Wait(testutil.Limit))
				require.Less(t, time.Since(start), testutil.Limit)
				for { // a signal may have ended the wait
					if ok, err := Wait(e.FD(), time.Second); ok || err != nil {
						require.NoError(t, err)
						break
					}
				}
				e.Clear()
			}
			require.Zero(t, testing.AllocsPerRun(100, func() { _ = s.Wait(0) }))
			require.NoError(t, s.Close())
			for _, e := range es {
				require.NoError(t, e.Close())
			}
			_, err = k.set(fds[0])
			require.Error(t, err, "a closed descriptor")
		})
	}
}

func TestMillis(t *testing.T) {
	for d, want := range map[time.Duration]int{-time.Second: 0, 0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, time.Second: 1000} {
		require.Equal(t, want, millis(d))
	}
}
