//go:build unix

package progress

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/testutil"
)

// A goroutine whose wait is long gives the engine to one that begins to wait, however busy
// the links are: otherwise every operation of the latter is handed over, which keeps the
// links busy.
func TestALongWaitGivesIn(t *testing.T) {
	e, err := New(nil, &busy{}, cpu.SpinPolicy{Polls: 64, Yields: 1 << 30}, cpu.NoHome, 1) // parks only if it has to
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	ctx, cancel := context.WithCancel(testutil.Context(t, testutil.Limit))
	var g sync.WaitGroup
	defer g.Wait()
	defer cancel()
	begin := func() *Waiter {
		w := new(Waiter)
		w.Init()
		g.Go(func() { _ = e.Wait(ctx, w) })
		return w
	}
	parked := func(w *Waiter) func() bool {
		return func() bool { return atomic.LoadUint32(&w.state) == waitParked }
	}
	long := begin()
	testutil.Eventually(t, testutil.Limit, func() bool { return e.owner.Load() == ownerApp }, "the first drives")
	for range 3 {
		short := begin()
		testutil.Eventually(t, testutil.Limit, parked(long), "the long wait is parked")
		testutil.Eventually(t, testutil.Limit, func() bool { return e.owner.Load() == ownerApp }, "the later one drives")
		require.False(t, parked(short)())
		long = short
	}
}

// While one goroutine makes operations all the time, the progress goroutine rests although
// others are parked; afterwards it looks after them again.
func TestActiveGoroutinesServeTheParked(t *testing.T) {
	a, b := pair(t, sim.Options{Caps: sim.CapsLike("tcp")})
	ctx := testutil.Context(t, testutil.Limit)
	var g sync.WaitGroup
	defer g.Wait()
	silent := new(Waiter)
	silent.Init()
	g.Go(func() { _ = a.eng.Wait(ctx, silent) })
	testutil.Eventually(t, testutil.Limit, func() bool { return a.eng.parked.Load() == 1 }, "parked")
	testutil.Eventually(t, testutil.Limit, func() bool {
		for range 1000 {
			a.eng.Progress()
		}
		return a.eng.rest.Load() == trusting
	}, "the progress goroutine rests")
	require.EqualValues(t, 1, a.eng.parked.Load())
	testutil.Eventually(t, testutil.Limit, func() bool { return a.eng.rest.Load() == asleep }, "it sleeps on the links")
	require.NoError(t, b.write(ctx, new(op)), "served by the target's progress goroutine")
	silent.Finish()
}
