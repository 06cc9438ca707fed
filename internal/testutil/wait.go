package testutil

import (
	"context"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/seed33544411/rma/internal/cpu"
)

// Limit ends a test that hangs. It measures nothing: on a busy machine, under the race
// detector, everything may take a hundred times as long as on an idle one. Tests that bound
// a wait themselves use it, too.
const Limit = 3 * time.Minute

// atLeast returns the bound of a wait that should take d. Limits of seconds exist to end a
// hang and are raised; short ones are part of the test and stay.
func atLeast(d time.Duration) time.Duration {
	if d >= 5*time.Second {
		return max(d, Limit)
	}
	return d
}

// Slow returns RMA_TEST_SLOW, the factor by which this machine is slower than a real one.
func Slow() int {
	n, _ := strconv.Atoi(os.Getenv("RMA_TEST_SLOW"))
	return max(n, 1)
}

// RaceSlow is the least Slow for time-outs and numbers of repetitions under the race detector: that reports
// accesses that nothing orders even if they are far apart in time, and needs few repetitions.
const RaceSlow = 4

// Patience returns the time after which a test's ranks take a peer for silent or gone: d on a real machine, longer on a
// slow one or under the race detector, where peers that are well are starved for longer.
func Patience(d time.Duration) time.Duration { return d * time.Duration(slowness(Slow())) }

// slowness is slow, or RaceSlow under the race detector if that is more.
func slowness(slow int) int {
	if Race {
		return max(slow, RaceSlow)
	}
	return slow
}

// Times returns how often to do what a test does n times on a real machine: divided by Slow,
// or by RaceSlow if that is more, but at least once.
func Times(n int) int { return Fewer(n, Slow()) }

// Fewer is Times for a machine that is slower by that factor.
func Fewer(n, slow int) int { return max(n/slowness(slow), 1) }

// Eventually calls done until it returns true, yields the processor in between, and ends
// the test if that takes longer than d.
func Eventually(tb testing.TB, d time.Duration, done func() bool, format string, args ...any) {
	tb.Helper()
	d = atLeast(d)
	var sp cpu.Spinner
	for end := time.Now().Add(d); !done(); {
		if sp.Wait() > 0 && time.Now().After(end) {
			tb.Fatalf("not within %v: "+format, append([]any{d}, args...)...)
		}
	}
}

// Within runs f in a goroutine and ends the test if f takes longer than d.
// f must not use tb.Fatal.
func Within(tb testing.TB, d time.Duration, what string, f func()) {
	tb.Helper()
	d = atLeast(d)
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	tm := time.NewTimer(d)
	defer tm.Stop()
	select {
	case <-done:
	case <-tm.C:
		tb.Fatalf("%s: not done within %v", what, d)
	}
}

// Context returns a context that ends after d or with the test.
func Context(tb testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), atLeast(d))
	tb.Cleanup(cancel)
	return ctx
}

// Holding calls f, which may end the test, with the lock held. A failed test that went on holding it would hang
// in the cleanups that close what uses it.
func Holding(l sync.Locker, f func()) {
	l.Lock()
	defer l.Unlock()
	f()
}
