package rma

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/internal/testutil"
)

// insist makes the engines' barriers run from rank to rank, however few processors there
// are.
func insist(es []*Engine) []*Engine {
	for _, e := range es {
		e.barrier.insist = true
	}
	return es
}

// No rank leaves a barrier before all have entered it, in any of many barriers; calls that
// end early are continued.
func TestBarrier(t *testing.T) {
	onAll(t, 5, func(t *testing.T, es []*Engine) {
		const ranks = 5
		phases := testutil.Times(60)
		insist(es)
		come := make([]atomic.Int64, phases)
		gaveUp := make([]chan struct{}, phases)
		for i := range gaveUp {
			gaveUp[i] = make(chan struct{})
		}
		together(t, es, func(ctx context.Context, e *Engine) error {
			rng := rand.New(rand.NewPCG(uint64(e.Rank()), 7))
			for i := range phases {
				// In some phases one rank enters when another has given up, and others may have.
				quits, enters := -1, -1
				if i > seldom && i%7 < ranks {
					quits, enters = i%7, (i%7+1)%ranks
				}
				if e.Rank() == enters {
					select {
					case <-gaveUp[i]:
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				come[i].Add(1)
				err := errors.New("not yet")
				if e.Rank() == quits || i > seldom && e.Rank() != enters && rng.IntN(2) == 0 {
					short, cancel := context.WithTimeout(ctx, 200*time.Microsecond) // deadline: some calls are given up
					err = e.Barrier(short)
					cancel()
				}
				if e.Rank() == quits {
					if !errors.Is(err, context.DeadlineExceeded) {
						return fmt.Errorf("phase %d: given up with %w", i, err)
					}
					close(gaveUp[i])
				}
				if err != nil {
					err = e.Barrier(ctx)
				}
				if err != nil {
					return fmt.Errorf("phase %d: %w", i, err)
				}
				if n := come[i].Load(); n != ranks {
					return fmt.Errorf("phase %d: through after %d", i, n)
				}
			}
			return nil
		})
	})
}

// Several goroutines of each rank: as many barriers as calls.
func TestBarrierOfManyGoroutines(t *testing.T) {
	es := insist(simulate(t, 3, "sim"))
	together(t, es, func(ctx context.Context, e *Engine) error {
		var g errgroup.Group
		for range 4 {
			g.Go(func() error {
				for range 10 {
					if err := e.Barrier(ctx); err != nil {
						return err
					}
				}
				return nil
			})
		}
		return g.Wait()
	})
}

// A rank that dies ends the barrier on all others, also on those that do not wait for its
// word; later barriers fail, too.
func TestBarrierWithoutAPeer(t *testing.T) {
	onAll(t, 6, func(t *testing.T, es []*Engine) {
		insist(es)
		together(t, es, func(ctx context.Context, e *Engine) error {
			for range seldom + 2 {
				if err := e.Barrier(ctx); err != nil {
					return err
				}
			}
			return nil
		})
		go es[3].Close()
		together(t, append(append([]*Engine{}, es[:3]...), es[4:]...), func(ctx context.Context, e *Engine) error {
			for range 2 {
				if err := e.Barrier(ctx); !errors.Is(err, ErrPeerGone) {
					return fmt.Errorf("rank %d: %w", e.Rank(), err)
				}
			}
			return nil
		})
	})
}

// A rank may close its engine immediately after a barrier.
func TestBarrierAndLeave(t *testing.T) {
	for range 10 {
		es := insist(simulate(t, 4, "sim"))
		together(t, es, func(ctx context.Context, e *Engine) error {
			for range seldom + 3 {
				if err := e.Barrier(ctx); err != nil {
					return err
				}
			}
			return e.Close()
		})
	}
	es := simulate(t, 2, "sim")
	require.NoError(t, es[0].Close())
	require.ErrorIs(t, es[0].Barrier(testutil.Context(t, testutil.Limit)), ErrClosed)
}

// benchRanks is the number of ranks in BenchmarkBarrier.
const benchRanks = 2

// A barrier of ranks in one process: through the job's server, and from rank to
// rank.
func BenchmarkBarrier(b *testing.B) {
	for name, through := range map[string]func(context.Context, *Engine) error{
		"server": func(ctx context.Context, e *Engine) error { return e.job.Barrier(ctx, "bench") },
		"ranks":  func(ctx context.Context, e *Engine) error { return e.Barrier(ctx) },
	} {
		b.Run(name, func(b *testing.B) {
			es := insist(open(b, benchRanks, "shm"))
			meet := func(n int) {
				together(b, es, func(ctx context.Context, e *Engine) error {
					for range n {
						if err := through(ctx, e); err != nil {
							return err
						}
					}
					return nil
				})
			}
			meet(seldom + 2)
			b.ResetTimer()
			meet(b.N)
		})
	}
}
