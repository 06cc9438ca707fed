package bench

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/internal/testutil"
)

func TestGateOpensForAllAtOnce(t *testing.T) {
	t.Parallel()
	const n, rounds = 4, 20
	g, err := OpenGate(n)
	require.NoError(t, err)
	ctx := testutil.Context(t, time.Minute)
	var came [rounds]atomic.Int32
	var eg errgroup.Group
	for range n {
		eg.Go(func() error {
			for r := range rounds {
				came[r].Add(1)
				if err := pass(ctx, g.Path()); err != nil {
					return err
				}
				if k := came[r].Load(); k != n {
					return context.DeadlineExceeded // released before all had arrived
				}
			}
			return nil
		})
	}
	require.NoError(t, eg.Wait())
	require.NoError(t, g.Close())
	require.NoFileExists(t, g.Path())
	require.Error(t, pass(ctx, g.Path()))
}

func TestGateShut(t *testing.T) {
	t.Parallel()
	g, err := OpenGate(3)
	require.NoError(t, err)
	ctx := testutil.Context(t, time.Minute)
	var eg errgroup.Group
	for range 2 {
		eg.Go(func() error { return pass(ctx, g.Path()) })
	}
	short, cancel := context.WithCancel(ctx)
	cancel()
	require.Error(t, pass(short, g.Path()), "who gives up does not wait for the others")
	require.NoError(t, g.Close())
	require.Error(t, eg.Wait())
}
