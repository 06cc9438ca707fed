package progress

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed33544411/rma/internal/cpu"
)

const (
	// napSlice bounds one nap: a waiter that naps notices so late that its context has ended.
	napSlice = 4 * time.Millisecond

	// maxNaps is the number of naps of one wait that end without an event. Longer waits park:
	// a goroutine that naps holds a thread, and the progress goroutine looks after it.
	maxNaps = 16
)

// naps is what an engine has for the waiter that sleeps on its links, at most one.
type naps struct {
	mu     sync.Mutex  // held by that waiter until it has left events
	on     atomic.Bool // it sleeps, or is about to, and no goroutine has disarmed the links
	events *events
}

// wake wakes that waiter, if there is one.
func (n *naps) wake() {
	if n.on.CompareAndSwap(true, false) {
		n.events.wake()
	}
}

// Finish is w.Finish for callers that are not the owner of e, on whose links the waiter may
// sleep. The work is not detached.
// Hot path.
func (e *Engine) Finish(w *Waiter) {
	w.Finish()
	e.naps.wake()
}

// close closes the descriptors when the waiters, which have been woken, no longer use them.
func (n *naps) close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.events.close()
}

// napper is one wait that spins, and then naps.
type napper struct {
	eng  *Engine
	sp   cpu.Spinner
	idle int // naps that ended without an event
}

// newNapper returns a wait that has not begun to spin.
func newNapper(e *Engine) napper {
	return napper{eng: e, sp: cpu.Spinner{Policy: &e.policy, Contention: e.contention}}
}

// nap lets a waiter that has spun for long enough sleep on the links itself. The event then
// wakes the thread that waits for it, where a parked waiter needs the progress goroutine's
// thread, and then one of its own. a is what it waits for. It reports whether the caller
// should drive again, and spin as from the start; otherwise it should park: it has napped for
// long, or another goroutine drives.
func (n *napper) nap(ctx context.Context, a *aim) bool {
	e := n.eng
	n.sp.Reset()
	if n.idle >= maxNaps || e.Err() != nil || ctx.Err() != nil {
		return false
	}
	n.sp.Turn() // goroutines that can run do not wait until the thread's processor is taken from it
	if !e.naps.mu.TryLock() {
		return false
	}
	defer e.naps.mu.Unlock()
	if e.closed.Load() || !e.tryLock(ownerApp) {
		return false
	}
	if a.done() { // another goroutine has driven meanwhile
		e.release()
		return true
	}
	limit, ok := arm(e)
	if ok && a.done() {
		e.disarm(len(e.links))
		ok = false
	}
	if !ok {
		e.release()
		return true
	}
	if limit == 0 || limit > napSlice {
		limit = napSlice
	}
	e.napped = true
	e.naps.on.Store(true)
	e.release()
	if e.closed.Load() || a.done() {
		e.naps.wake() // Close, or Finish, may have found nobody
	}
	begun := cpu.Ticks()
	if _, err := e.naps.events.wait(limit); err != nil && !e.closed.Load() {
		e.fail("wait for events", err)
	}
	if !e.naps.on.CompareAndSwap(true, false) {
		return false // another goroutine drives
	}
	if n.sp.Patient = cpu.Duration(cpu.Ticks()-begun) < limit; !n.sp.Patient { // no event ended it
		n.idle++
	}
	return true
	// The next tryLock, of any goroutine, disarms.
}
