//go:build unix

package progress

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/event"
	"github.com/seed33544411/rma/internal/testutil"
)

// quiet returns an engine on a link where nothing happens, without a progress goroutine: a
// waiter that parks is woken by nobody.
func quiet(t *testing.T) *Engine {
	ev, err := event.New()
	require.NoError(t, err)
	e, err := New([]fabric.Link{&idle{ev: ev, armed: make(chan int64)}}, nothing{}, cpu.SpinPolicy{Polls: 1}, cpu.NoHome, 1)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, e.Close())
		require.NoError(t, ev.Close())
	})
	return e
}

// waiting waits for w in another goroutine, and returns when that one naps, or has napped
// for so long that it is parked. The function returned waits for its result.
func waiting(ctx context.Context, t *testing.T, e *Engine, w *Waiter) (result func() error) {
	w.Init()
	end := make(chan error, 1)
	go func() { end <- e.Wait(ctx, w) }()
	testutil.Eventually(t, testutil.Limit, func() bool { return e.naps.on.Load() || e.parked.Load() > 0 }, "it sleeps")
	return func() (err error) {
		testutil.Within(t, testutil.Limit, "the wait", func() { err = <-end })
		return err
	}
}

// The event of a link wakes the waiter itself.
func TestANapEndsByAnEvent(t *testing.T) {
	for _, several := range []bool{false, true} {
		a, b := pair(t, sim.Options{Caps: sim.CapsLike("shm")})
		require.NoError(t, a.eng.Close())
		e, err := New([]fabric.Link{a.link}, a, cpu.SpinPolicy{Polls: 1}, cpu.NoHome, 1)
		require.NoError(t, err)
		a.eng = e // never started
		ctx := testutil.Context(t, testutil.Limit)
		for range 50 {
			o := new(op)
			a.push(o)
			e.Kick()
			if several {
				_, err = e.WaitAny(ctx, 0, Waiters{nil, &o.Waiter})
			} else {
				err = e.Wait(ctx, &o.Waiter)
			}
			require.NoError(t, err)
			require.Equal(t, fabric.StatusOK, o.status)
		}
		require.NoError(t, e.Close())
		require.NoError(t, b.eng.Close())
	}
}

// A goroutine that drives wakes the one that naps, which does not poll links that another
// has disarmed, and finds that its work is done.
func TestADriverEndsANap(t *testing.T) {
	e := quiet(t)
	var w Waiter
	end := waiting(testutil.Context(t, testutil.Limit), t, e, &w)
	testutil.Eventually(t, testutil.Limit, func() bool { return e.Own() }, "the engine is free")
	w.Finish()
	require.False(t, e.armed)
	e.Disown()
	require.NoError(t, end())
}

// A goroutine that does not drive wakes the one whose work it finishes.
func TestFinishEndsANap(t *testing.T) {
	e := quiet(t)
	var w Waiter
	end := waiting(testutil.Context(t, testutil.Limit), t, e, &w)
	e.Finish(&w)
	require.False(t, e.naps.on.Load())
	require.NoError(t, end())
}

// What another goroutine has finished before the links are armed is not slept on: there will
// be no event.
func TestNoNapForFinishedWork(t *testing.T) {
	e := quiet(t)
	var w Waiter
	w.Init()
	w.Finish()
	n := newNapper(e)
	require.True(t, n.nap(t.Context(), &aim{any: Waiters{nil, &w}}))
	require.Zero(t, n.idle)
	require.False(t, e.armed)
}

// The end of the context ends a wait that naps, and Close does.
func TestWhatEndsNaps(t *testing.T) {
	e := quiet(t)
	var w Waiter
	ctx, cancel := context.WithCancel(testutil.Context(t, testutil.Limit))
	end := waiting(ctx, t, e, &w)
	cancel()
	require.ErrorIs(t, end(), context.Canceled)

	end = waiting(testutil.Context(t, testutil.Limit), t, e, &w)
	require.NoError(t, e.Close())
	require.ErrorIs(t, end(), ErrClosed)
}

// A wait naps so often, then it parks: the progress goroutine looks after long waits.
func TestLongWaitsPark(t *testing.T) {
	e := quiet(t)
	e.Start(false)
	var w Waiter
	end := waiting(testutil.Context(t, testutil.Limit), t, e, &w)
	testutil.Eventually(t, testutil.Limit, func() bool { return e.parked.Load() == 1 && e.rest.Load() == asleep }, "it is parked")
	require.False(t, e.naps.on.Load())
	w.Finish()
	require.NoError(t, end())
}

// A wake-up that comes late uses no descriptor that is closed: its number may be another file's by then.
func TestWakeAfterClose(t *testing.T) {
	if !testutil.Alone(t) {
		return
	}
	ev, err := newEvents(nil)
	require.NoError(t, err)
	fd := ev.waking.FD()
	require.NoError(t, ev.close())
	other, err := event.New()
	require.NoError(t, err)
	require.Equal(t, fd, other.FD(), "the lowest number that is free")
	ev.wake()
	set, err := event.Wait(other.FD(), 0)
	require.NoError(t, err)
	require.False(t, set)
	require.NoError(t, other.Close())
	require.NoError(t, ev.close(), "again")
}
