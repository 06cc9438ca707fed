//go:build unix

package progress

import (
	"context"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/testutil"
)

func waiters(n int) (own []*Waiter, all Waiters) {
	for range n {
		w := new(Waiter)
		w.Init()
		own = append(own, w)
	}
	return own, append(Waiters{nil}, own...)
}

// Whoever ends first is returned, parked or not, and every waiter works as before
// afterwards.
func TestWaitAny(t *testing.T) {
	a, _ := pair(t, sim.Options{})
	ctx := testutil.Context(t, 30*time.Second)
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		own, all := waiters(1 + rng.IntN(5))
		if rng.IntN(4) == 0 {
			all = append(all, own[0]) // twice
		}
		k := rng.IntN(len(own))
		delay := time.Duration(rng.IntN(2000)) * time.Microsecond
		go func() {
			if round%2 == 0 {
				time.Sleep(delay) // sleep: the other side parks, or is about to
			}
			own[k].Finish()
		}()
		i, err := a.eng.WaitAny(ctx, rng.IntN(len(all)), all)
		require.NoError(t, err)
		require.Same(t, own[k], all[i])
		for j, w := range own {
			if j != k {
				require.False(t, w.Done())
				go w.Finish()
				require.NoError(t, a.eng.Wait(ctx, w))
			}
		}
	}
}

// A waiter that is named twice is parked once: its finisher may be reading its
// channel when the second mention is looked at.
func TestWaitAnyOfOneNamedTwice(t *testing.T) {
	a, _ := pair(t, sim.Options{})
	ctx := testutil.Context(t, 30*time.Second)
	a.eng.naps.mu.Lock() // waits park at once
	defer a.eng.naps.mu.Unlock()
	for range 40 {
		own, all := waiters(1)
		for range 64 {
			all = append(all, own[0])
		}
		go func() {
			for a.eng.parked.Load() == 0 {
				runtime.Gosched()
			}
			own[0].Finish()
		}()
		i, err := a.eng.WaitAny(ctx, 0, all)
		require.NoError(t, err)
		require.NotZero(t, i)
		own[0].Init()
		go own[0].Finish()
		require.NoError(t, a.eng.Wait(ctx, own[0]), "it has its own channel again")
	}
}

// Many end while one waits: none is lost, none is stuck.
func TestWaitAnyOfManyEnding(t *testing.T) {
	a, _ := pair(t, sim.Options{})
	ctx := testutil.Context(t, 60*time.Second)
	for range 50 {
		own, all := waiters(64)
		for i := range 4 {
			go func() {
				for j := i; j < len(own); j += 4 {
					own[j].Finish()
				}
			}()
		}
		seen := 0
		for seen < len(own) {
			i, err := a.eng.WaitAny(ctx, seen, all)
			require.NoError(t, err)
			require.True(t, all[i].Done())
			all[i] = nil
			seen++
		}
	}
}

func TestWaitAnyEndsWithItsContext(t *testing.T) {
	a, _ := pair(t, sim.Options{})
	own, all := waiters(3)
	for _, d := range []time.Duration{0, 20 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), d) // deadline: it has to end
		i, err := a.eng.WaitAny(ctx, 0, all)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, -1, i)
	}
	own[1].Finish()
	i, err := a.eng.WaitAny(t.Context(), 0, all)
	require.NoError(t, err)
	require.Equal(t, 2, i)
}

// A detached waiter is its finisher's.
func TestDetach(t *testing.T) {
	var w Waiter
	w.Init()
	require.True(t, w.Detach())
	require.False(t, w.Done())
	require.True(t, w.Finish())
	require.True(t, w.Done())
	w.Init()
	require.False(t, w.Finish())
	require.False(t, w.Detach(), "it has ended: its owner keeps it")
}
