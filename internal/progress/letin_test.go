//go:build unix

package progress

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/testutil"
)

// busy is a protocol that always has something to do: the progress goroutine
// never rests.
type busy struct{ rounds atomic.Int64 }

func (b *busy) Pending() bool                     { return false }
func (b *busy) Refuse()                           {}
func (b *busy) Step() bool                        { b.rounds.Add(1); return true }
func (b *busy) Watches() bool                     { return true }
func (b *busy) Rest(bool) time.Duration           { return 0 }
func (b *busy) Complete(int, []fabric.Completion) {}

// The progress goroutine does not poll on while somebody waits in Do, however
// busy the links are; else Do would depend on luck.
func TestBusyLoopLetsOthersIn(t *testing.T) {
	p := &busy{}
	e, err := New(nil, p, cpu.Default(), cpu.NoHome, 1)
	require.NoError(t, err)
	e.Start(false)
	defer func() { require.NoError(t, e.Close()) }()
	testutil.Eventually(t, 20*time.Second, func() bool { return p.rounds.Load() > 1000 }, "rounds")
	e.want.Add(1)
	testutil.Eventually(t, 20*time.Second, func() bool {
		before := p.rounds.Load()
		time.Sleep(5 * time.Millisecond) // sleep: rounds that should not be
		return p.rounds.Load() == before
	}, "the end of the rounds")
	before := p.rounds.Load()
	time.Sleep(50 * time.Millisecond)                 // sleep: rounds that should not be
	require.LessOrEqual(t, p.rounds.Load(), before+1) // one may have been under way
	e.want.Add(-1)
	testutil.Eventually(t, 20*time.Second, func() bool { return p.rounds.Load() > before+1000 }, "rounds again")
	for range 100 {
		e.Do(func() {})
	}
}

// A wait that gives way to goroutines in Do ends nevertheless, however many of them there are.
func TestAWaitThatGivesWayEnds(t *testing.T) {
	p := &busy{}
	e, err := New(nil, p, cpu.Default(), cpu.NoHome, 1) // never started
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	e.want.Add(1)
	defer e.want.Add(-1)
	for what, end := range map[string]func(*Waiter, context.CancelFunc){
		"context": func(_ *Waiter, cancel context.CancelFunc) { cancel() },
		"work":    func(w *Waiter, _ context.CancelFunc) { w.Finish() },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var w Waiter
		w.Init()
		before, ended := p.rounds.Load(), make(chan error, 1)
		go func() { ended <- e.Wait(ctx, &w) }()
		testutil.Eventually(t, testutil.Limit, func() bool { return p.rounds.Load() > before }, "it drives")
		end(&w, cancel)
		testutil.Within(t, testutil.Limit, what, func() { err = <-ended })
		if what == "work" {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, context.Canceled)
		}
	}
}

// An engine that was never started closes.
func TestCloseBeforeStart(t *testing.T) {
	e, err := New(nil, nothing{}, cpu.Default(), cpu.NoHome, 1)
	require.NoError(t, err)
	require.NoError(t, e.Close())
}
