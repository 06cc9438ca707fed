package rma

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/internal/testutil"
)

// However Set and Reset coincide, the waiter sees every change made before a Set.
func TestEvent(t *testing.T) {
	t.Parallel()
	e := open(t, 1, "shm")[0]
	ctx := testutil.Context(t, 60*time.Second)
	ev := e.NewEvent()
	const n, setters = 2000, 3
	var made, seen atomic.Int64
	var g errgroup.Group
	for range setters {
		g.Go(func() error {
			for range n {
				made.Add(1)
				ev.Set()
			}
			return nil
		})
	}
	for seen.Load() < setters*n {
		ev.Reset()
		if now := made.Load(); now > seen.Load() {
			seen.Store(now)
			continue
		}
		require.NoError(t, ev.Wait(ctx))
	}
	require.NoError(t, g.Wait())

	ev.Reset()
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond) // deadline: it has to end
	defer cancel()
	require.ErrorIs(t, ev.Wait(short), context.DeadlineExceeded)
	ev.Set()
	ev.Set()
	require.NoError(t, ev.Wait(ctx)) // once set it stays so
	require.NoError(t, ev.Wait(ctx))
	ev.Reset()
	require.NoError(t, e.Close())
	for range 2 * beatSteps { // so many steps would use the engine's memory, which is gone
		require.ErrorIs(t, ev.Wait(ctx), ErrClosed)
	}
}
