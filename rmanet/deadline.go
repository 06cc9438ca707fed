package rmanet

import (
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/bubble"
)

// deadline is a time that may be changed while goroutines wait. It is also the context of
// their waits, without a channel: when the time is reached, the event that they wait for is
// set.
type deadline struct {
	ev     *rma.Event
	passed atomic.Bool
	far    atomic.Int64 // if set in a bubble, whose timers do not run during a wait: the deadline by bubble.Now

	mu    sync.Mutex
	timer *time.Timer
	moved uint64 // how often it was set
}

// set changes the deadline and wakes the waiting goroutines; the zero time means none.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.moved++
	left := time.Until(t)
	d.far.Store(0)
	d.passed.Store(!t.IsZero() && left <= 0)
	switch {
	case t.IsZero(), left <= 0:
	case bubble.Inside():
		d.far.Store(bubble.Now() + int64(left))
	default:
		moved := d.moved
		d.timer = time.AfterFunc(left, func() { d.fire(moved) })
	}
	d.ev.Set()
}

// fire is called at the time that was the deadline when moved had this value.
func (d *deadline) fire(moved uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if moved == d.moved {
		d.passed.Store(true)
		d.ev.Set()
	}
}

// stop ends the timer.
func (d *deadline) stop() { d.set(time.Time{}) }

// over reports whether the deadline has passed.
func (d *deadline) over() bool {
	far := d.far.Load()
	return d.passed.Load() || far != 0 && bubble.Now() >= far
}

// until is a deadline as the context of a wait.
type until deadline

func (u *until) Deadline() (time.Time, bool) { return time.Time{}, false }
func (u *until) Done() <-chan struct{}       { return nil }
func (u *until) Value(any) any               { return nil }

func (u *until) Err() error {
	if (*deadline)(u).over() {
		return os.ErrDeadlineExceeded
	}
	return nil
}
