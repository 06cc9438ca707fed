package rmanet

import (
	"os"
	"sync"
	"time"
)

// deadline is a time that may be moved while somebody waits for it.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	ch    chan struct{} // closed when the time has come
}

func newDeadline() deadline { return deadline{ch: make(chan struct{})} }

// set moves the deadline; the zero time means none.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.timer.Stop() {
		<-d.ch // it has fired: wait until it has closed the channel
	}
	d.timer = nil
	over := closed(d.ch)
	if t.IsZero() {
		if over {
			d.ch = make(chan struct{})
		}
		return
	}
	left := time.Until(t)
	switch {
	case left > 0:
		if over {
			d.ch = make(chan struct{})
		}
		ch := d.ch
		d.timer = time.AfterFunc(left, func() { close(ch) })
	case !over:
		close(d.ch)
	}
}

// wait returns a channel that is closed when the time has come.
func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ch
}

// stop ends the timer.
func (d *deadline) stop() { d.set(time.Time{}) }

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// until is a context that ends with a channel. It is reused: no allocation.
type until struct{ ch <-chan struct{} }

func (u *until) Deadline() (time.Time, bool) { return time.Time{}, false }
func (u *until) Done() <-chan struct{}       { return u.ch }
func (u *until) Value(any) any               { return nil }

func (u *until) Err() error {
	if closed(u.ch) {
		return os.ErrDeadlineExceeded
	}
	return nil
}
