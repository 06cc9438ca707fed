package rma

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/seed33544411/rma/internal/progress"
)

// Event lets one goroutine wait for what a handler, a Receiver or another
// goroutine finds out. Waiting is that of requests: the goroutine drives the links
// itself while nobody else does, so that no hand-over between goroutines lies
// between a message and its reader, then sleeps. The waiter calls Reset, looks
// whether what it waits for is there already, and calls Wait; who changes that
// calls Set afterwards.
type Event struct {
	eng   *Engine
	w     progress.Waiter
	state atomic.Uint32
}

// States of an Event.
const (
	eventSet     uint32 = iota // since the last Reset, if there was one
	eventArmed                 // Set has an effect
	eventSetting               // somebody is in Set
)

// NewEvent returns an event that is not set.
func (e *Engine) NewEvent() *Event {
	ev := &Event{eng: e}
	ev.Reset()
	return ev
}

// Reset makes later calls of Wait wait for a Set after this one. For the waiter.
func (ev *Event) Reset() {
	for {
		switch ev.state.Load() {
		case eventArmed:
			return // nobody has called Set since
		case eventSet:
			ev.w.Init()
			ev.state.Store(eventArmed)
			return
		}
		runtime.Gosched() // Set is about to be through: it waits for nothing
	}
}

// Set ends the Wait, or the next one before a Reset. From any goroutine, any
// number of times; does not wait or allocate.
func (ev *Event) Set() {
	if ev.state.CompareAndSwap(eventArmed, eventSetting) {
		ev.w.Finish()
		ev.state.Store(eventSet)
	}
}

// Wait returns nil once Set was called, or the error of ctx, or ErrClosed. One
// goroutine at a time.
func (ev *Event) Wait(ctx context.Context) error {
	if err := ev.eng.prog.Wait(ctx, &ev.w); err != nil {
		if errors.Is(err, progress.ErrClosed) {
			return ErrClosed
		}
		return fmt.Errorf("rma: wait: %w", err)
	}
	return nil
}
