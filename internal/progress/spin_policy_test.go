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
	"github.com/seed33544411/rma/internal/event"
	"github.com/seed33544411/rma/internal/testutil"
)

// idle is a link where nothing happens; it counts polls.
type idle struct {
	fabric.Link
	ev    event.Event
	polls atomic.Int64
	armed chan int64 // polls until Arm
}

// newIdle returns such a link, which tells of so many Arms that nobody has read of yet.
func newIdle(t *testing.T, arms int) *idle {
	ev, err := event.New()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ev.Close()) })
	return &idle{ev: ev, armed: make(chan int64, arms)}
}

func (l *idle) Poll([]fabric.Completion) int { l.polls.Add(1); return 0 }
func (l *idle) Name() string                 { return "idle" }
func (l *idle) FD() int                      { return l.ev.FD() }
func (l *idle) Disarm()                      {}

func (l *idle) Arm() (bool, error) {
	select {
	case l.armed <- l.polls.Load():
	default: // the test has seen enough
	}
	return true, nil
}

// nothing is a protocol without work.
type nothing struct{}

func (nothing) Pending() bool                     { return false }
func (nothing) Refuse()                           {}
func (nothing) Step() bool                        { return false }
func (nothing) Watches() bool                     { return false }
func (nothing) Rest(bool) time.Duration           { return 0 }
func (nothing) Complete(int, []fabric.Completion) {}

// What has nothing to do sleeps after as many looks as its policy has, whatever the
// clock says, and who waits and the progress goroutine do not spin one after the other.
func TestPatienceBoundsPolls(t *testing.T) {
	p := cpu.SpinPolicy{Polls: 20, Pauses: 10, Yields: 7}
	const looks = 20 + 10 + 7
	l := newIdle(t, 1)
	e, err := New([]fabric.Link{l}, nothing{}, p, cpu.NoHome, 1)
	require.NoError(t, err)
	e.Start(false)
	defer e.Close()
	require.EqualValues(t, looks, <-l.armed, "the progress goroutine alone")

	least := int64(1 << 20)
	for range 10 { // a second that this goroutine is not run is a look round more
		for len(l.armed) > 0 {
			<-l.armed
		}
		before := l.polls.Load()
		var w Waiter
		w.Init()
		ctx, cancel := context.WithCancel(testutil.Context(t, time.Minute))
		waits := make(chan error)
		go func() { waits <- e.Wait(ctx, &w) }()
		least = min(least, <-l.armed-before)
		cancel()
		require.ErrorIs(t, <-waits, context.Canceled)
	}
	// The progress goroutine may look a few times before it finds somebody parked.
	require.Less(t, least, int64(2*looks))
}

// server is an idle link whose Poll executes a request of a peer every few polls.
type server struct {
	*idle
	every, requests int64
	all             chan struct{} // closed after so many requests
}

func (l *server) Served() uint32 {
	n := l.polls.Load() / l.every
	if n == l.requests {
		select {
		case <-l.all:
		default:
			close(l.all)
		}
	}
	return uint32(min(n, l.requests))
}

// A target whose engine executes requests of a peer neither sleeps nor yields between them:
// requests cause no completion there.
func TestRequestsOfPeersKeepAwake(t *testing.T) {
	p := cpu.SpinPolicy{Polls: 20, Pauses: 10, Yields: 7}
	const looks, every, requests = 20 + 10 + 7, 10, 1000
	l := &server{newIdle(t, requests), every, requests, make(chan struct{})}
	e, err := New([]fabric.Link{l}, nothing{}, p, cpu.NoHome, 1)
	require.NoError(t, err)
	e.Start(false)
	defer e.Close()
	<-l.all
	require.EqualValues(t, every*requests+looks, <-l.armed, "polls before the first sleep")
}
