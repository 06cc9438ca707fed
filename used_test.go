package rma

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// If two goroutines wait for one request, which is not allowed, one gets the result and the
// other ErrRequestUsed.
func TestTwoWaitersOfOneRequest(t *testing.T) {
	es := open(t, 2, "shm")
	ctx := testutil.Context(t, testutil.Limit)
	for range 200 {
		var got int
		r := es[0].Peer(1).RecvTag(3, make([]byte, 8))
		errs := make(chan error, 2)
		var started sync.WaitGroup
		for range 2 {
			started.Add(1)
			go func() {
				started.Done()
				n, err := r.Wait(ctx)
				if err == nil {
					got += n
				}
				errs <- err
			}()
		}
		started.Wait()
		require.NoError(t, es[1].Peer(0).SendTag(3, make([]byte, 8)).Wait(context.Background()))
		first, second := <-errs, <-errs
		if first == nil {
			first, second = second, first
		}
		require.ErrorIs(t, first, ErrRequestUsed)
		require.NoError(t, second)
		require.Equal(t, 8, got)
	}
}
