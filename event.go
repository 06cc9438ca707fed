package rma

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/seed33544411/rma/internal/progress"
)

// Event lets one goroutine wait for a condition that a handler, a Receiver or another
// goroutine establishes. It waits as requests do: the goroutine polls the links itself if
// no other goroutine does, so that there is no hand-over between goroutines on the path of
// a message to its reader; then it sleeps. The waiter calls Reset, checks the condition,
// and calls Wait; the other side establishes the condition, and then calls Set.
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

// Reset makes later calls of Wait wait for a Set after this call. Only the waiter may call
// it.
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

// Set ends the Wait, or the next one before a Reset. It may be called from any goroutine,
// any number of times; it does not wait or allocate.
func (ev *Event) Set() {
	if ev.state.CompareAndSwap(eventArmed, eventSetting) {
		ev.w.Finish()
		ev.state.Store(eventSet)
	}
}

// Wait returns nil once Set was called, or the error of ctx, or ErrClosed. Only one
// goroutine at a time may call it.
func (ev *Event) Wait(ctx context.Context) error {
	if err := ev.eng.prog.Wait(ctx, &ev.w); err != nil {
		if errors.Is(err, progress.ErrClosed) {
			return ErrClosed
		}
		return fmt.Errorf("rma: wait: %w", err)
	}
	return nil
}
