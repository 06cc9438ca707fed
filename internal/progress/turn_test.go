//go:build unix

package progress

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/testutil"
)

// A goroutine that drives and gives others a turn does not keep the engine meanwhile: they
// may compute in it for long. It need not become the owner again.
func TestTurnsLendTheEngine(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))                               // this goroutine runs when the other lets it
	e, err := New(nil, nothing{}, cpu.SpinPolicy{Yields: 1 << 30}, cpu.NoHome, 1) // always drives
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	ctx := testutil.Context(t, testutil.Limit)
	drives := e.drives
	waits := []func(w *Waiter) error{
		func(w *Waiter) error { return e.Wait(ctx, w) },
		func(w *Waiter) error { _, err := e.WaitAny(ctx, 0, Waiters{nil, w}); return err },
	}
	for i := range 6 {
		wait := waits[i%2]
		var w Waiter
		w.Init()
		var g sync.WaitGroup
		var err error
		g.Go(func() { err = wait(&w) })
		testutil.Eventually(t, testutil.Limit, func() bool {
			if !e.Hold() {
				return false
			}
			if e.drives > drives {
				return true
			}
			e.Disown() // the wait has not begun
			return false
		}, "the engine is lent by a goroutine that drives")
		drives = e.drives
		require.False(t, w.Done())
		w.Finish()
		e.Disown()
		g.Wait()
		require.NoError(t, err)
	}
}

// Close during such a turn ends the wait.
func TestCloseDuringTurns(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for range 50 {
		e, err := New(nil, nothing{}, cpu.SpinPolicy{Yields: 1 << 30}, cpu.NoHome, 1)
		require.NoError(t, err)
		var w Waiter
		w.Init()
		ctx := testutil.Context(t, testutil.Limit)
		ended := make(chan error, 1)
		go func() { ended <- e.Wait(ctx, &w) }()
		testutil.Eventually(t, testutil.Limit, e.Own, "the engine is lent, or the wait has not begun")
		e.Disown()
		require.NoError(t, e.Close())
		require.ErrorIs(t, <-ended, ErrClosed)
	}
}
