package progress

import (
	"bytes"
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/testutil"
)

// compute occupies n goroutines until the function returned is called.
func compute(n int) (end func()) {
	var over atomic.Bool
	var g sync.WaitGroup
	for range n {
		g.Go(func() {
			for !over.Load() {
			}
		})
	}
	return func() { over.Store(true); g.Wait() }
}

// twoPs gives the test two Ps.
func twoPs(t *testing.T) {
	was := runtime.GOMAXPROCS(2)
	t.Cleanup(func() { runtime.GOMAXPROCS(was) })
}

// relayed is an engine that may have a relay, on a link where nothing happens.
func relayed(t *testing.T, p Protocol) (*Engine, *idle) { return startedWith(t, p, true) }

func startedWith(t *testing.T, p Protocol, extraP bool) (*Engine, *idle) {
	l := newIdle(t, 1)
	e, err := New([]fabric.Link{l}, p, cpu.Default(), cpu.NoHome, 1)
	require.NoError(t, err)
	e.Start(extraP)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e, l
}

// until waits for cond without a goroutine that can run, which the scheduler's load would show.
func until(t *testing.T, cond func() bool, what string) {
	t.Helper()
	for end := time.Now().Add(testutil.Limit); !cond(); time.Sleep(time.Millisecond) { // sleep: between two looks
		require.True(t, time.Now().Before(end), what)
	}
}

// begins wakes the progress goroutine until the relay has begun.
func begins(t *testing.T, e *Engine) {
	until(t, func() bool { e.rouse(); return e.relay.on.Load() }, "relay")
}

// roundTrip waits until the progress goroutine has been woken.
func roundTrip(e *Engine) {
	called := make(chan struct{})
	e.Outside(func() { close(called) })
	<-called
}

// The relay begins when goroutines compute on all Ps, and ends when they do no longer, or the
// engine is closed. The process has one P more meanwhile.
func TestRelayFollowsTheLoad(t *testing.T) {
	twoPs(t)
	e, _ := relayed(t, nothing{})
	for range 50 {
		roundTrip(e)
		require.False(t, e.relay.on.Load(), "nobody computes")
	}
	for range 2 {
		end := compute(2)
		begins(t, e)
		until(t, func() bool { return runtime.GOMAXPROCS(0) == 3 }, "one P more")
		end()
		until(t, func() bool { return !e.relay.on.Load() && runtime.GOMAXPROCS(0) == 2 }, "end of the relay")
	}
	defer compute(2)()
	begins(t, e)
	require.NoError(t, e.Close())
	require.Equal(t, 2, runtime.GOMAXPROCS(0))
}

// GOMAXPROCS that the application sets during the relay ends it, and is kept: the goroutine must not
// sleep on a P that the application counts on. Beside one P the next relay may begin before the test
// runs again; it adds a P to the one that was set.
func TestRelayKeepsWhatTheApplicationSets(t *testing.T) {
	for _, n := range []int{1, 4} {
		twoPs(t)
		e, _ := relayed(t, nothing{})
		end := compute(2)
		t.Cleanup(end) // also of a failed test: others count goroutines that compute
		begins(t, e)
		runtime.GOMAXPROCS(n)
		until(t, func() bool { return !e.relay.on.Load() || runtime.GOMAXPROCS(0) == n+1 }, "end of the relay")
		end()
		until(t, func() bool { return !e.relay.on.Load() && runtime.GOMAXPROCS(0) == n }, "what was set")
		require.NoError(t, e.Close())
		require.Equal(t, n, runtime.GOMAXPROCS(0))
	}
}

// A process with one P gets another one as well.
func TestRelayBesideOneP(t *testing.T) {
	twoPs(t)
	runtime.GOMAXPROCS(1)
	e, _ := relayed(t, nothing{})
	defer compute(1)()
	begins(t, e)
	require.Equal(t, 2, runtime.GOMAXPROCS(0))
	for range 20 {
		roundTrip(e)
	}
}

// No P is added where that is not allowed.
func TestNoRelay(t *testing.T) {
	twoPs(t)
	e, _ := startedWith(t, nothing{}, false)
	defer compute(4)()
	for range 20 {
		roundTrip(e)
	}
	require.False(t, e.relay.on.Load())
	require.Equal(t, 2, runtime.GOMAXPROCS(0))
}

// stepped records the goroutines that call Step.
type stepped struct {
	nothing
	mu   sync.Mutex
	seen map[string]bool
}

func (s *stepped) Step() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	head := make([]byte, 32)
	head = head[:runtime.Stack(head, false)]
	s.seen[string(head[:bytes.IndexByte(head, '[')])] = true // "goroutine 17 "
	return false
}

// Goroutines take turns, also while the collector stops them, and every wake-up is answered.
func TestRelayTakesTurns(t *testing.T) {
	twoPs(t)
	p := &stepped{seen: map[string]bool{}}
	e, l := relayed(t, p)
	defer compute(6)()
	begins(t, e)
	turns := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.seen)
	}
	begun := time.Now()
	for n := turns(); turns() < n+8 && time.Since(begun) < testutil.Limit; {
		runtime.GC()
		polls := l.polls.Load()
		roundTrip(e)
		testutil.Eventually(t, testutil.Limit, func() bool { return l.polls.Load() > polls }, "a poll")
	}
	require.Less(t, time.Since(begun), testutil.Limit, "turns")
}

// An operation of a peer is served, and those of the application end, while all goroutines compute.
func TestOperationsDuringARelay(t *testing.T) {
	twoPs(t)
	a, _ := pair(t, sim.Options{Caps: sim.CapsLike("tcp")})
	e := takeOver(t, a)
	e.Start(true)
	defer func() { require.NoError(t, e.Close()) }()
	defer compute(4)()
	begins(t, e)
	for range 20 {
		a.leave(t)
		require.NoError(t, a.write(testutil.Context(t, testutil.Limit), &op{off: 8}))
	}
}

// A waiter leaves the links to the progress goroutine: it polls for some rounds, without a yield in
// which threads that compute would run, and parks without a sleep on the links.
func TestWaitersLeaveTheLinksDuringARelay(t *testing.T) {
	l := newIdle(t, 1)
	e, err := New([]fabric.Link{l}, nothing{}, cpu.SpinPolicy{Polls: 1 << 30}, cpu.NoHome, 1)
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	e.relay.allowed = true
	e.relay.on.Store(true)
	waits := map[string]func(ctx context.Context, w *Waiter) error{
		"Wait":    e.Wait,
		"WaitAny": func(ctx context.Context, w *Waiter) error { _, err := e.WaitAny(ctx, 0, Waiters{w}); return err },
	}
	for name, wait := range waits {
		ctx, cancel := context.WithCancel(testutil.Context(t, testutil.Limit))
		ended := make(chan error)
		polls := l.polls.Load()
		var w Waiter
		w.Init()
		go func() { ended <- wait(ctx, &w) }()
		testutil.Eventually(t, testutil.Limit, func() bool { return e.parked.Load() == 1 }, name)
		require.LessOrEqual(t, l.polls.Load()-polls, int64(driveRounds+1), name)
		require.Empty(t, l.armed, name)
		require.Equal(t, ownerNone, e.owner.Load(), name)
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled, name)
	}
}

// After a spin in vain the progress goroutine sleeps twice as often without one as after the last, until
// a spin finds an event.
func TestSpinsInVain(t *testing.T) {
	var r relay
	spins := func() (n int) {
		for r.spins() {
			n++
		}
		r.idle = 0
		return n
	}
	for n := 1; n <= 4*maxVain; n *= 2 {
		require.NotZero(t, spins())
		r.found() // at once after the sleep
		for range min(n, maxVain) {
			require.Zero(t, spins())
		}
	}
	require.True(t, r.spins())
	r.found()
	require.True(t, r.busy)
	require.NotZero(t, spins())
	require.Zero(t, spins())
	require.NotZero(t, spins())
}
