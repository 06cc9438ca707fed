package progress

import (
	"context"
	"sync/atomic"

	"github.com/seed33544411/rma/internal/bubble"
	"github.com/seed33544411/rma/internal/cpu"
)

// Waiter states.
const (
	waitPending uint32 = iota
	waitParked
	waitDetached
	waitDone
)

// Waiter is the end of one piece of work. Init it before use. It may be reused when it is
// done and no goroutine waits for it.
type Waiter struct {
	state uint32        // accessed atomically
	ch    chan struct{} // created by the first park, and kept
}

// Init prepares w for its next use.
func (w *Waiter) Init() {
	// A late call about the last use, such as a cancellation, may still be reading.
	cpu.StoreRelease32(&w.state, waitPending)
}

// Done reports whether the work has ended. The caller may then read data written before
// Finish.
func (w *Waiter) Done() bool { return atomic.LoadUint32(&w.state) == waitDone }

// Finish marks the work as ended and wakes the waiter. Call it once per Init. Unless it
// returns true, the caller must not access the work afterwards. True means that the work
// was detached and belongs to the caller.
func (w *Waiter) Finish() (detached bool) {
	switch atomic.SwapUint32(&w.state, waitDone) {
	case waitParked:
		select {
		case w.ch <- struct{}{}:
		default: // two goroutines wait, against the rules, and one has been woken already
		}
	case waitDetached:
		return true
	}
	return false
}

// Detach declares that no goroutine will wait: the finisher then owns the work. It returns
// false if the work has ended already and remains the caller's. No goroutine may be
// waiting.
func (w *Waiter) Detach() bool {
	return atomic.CompareAndSwapUint32(&w.state, waitPending, waitDetached)
}

// driverTries is the number of times that a waiting goroutine tries to become the owner
// while the progress goroutine is polling: polling idle links takes well below a
// microsecond.
const driverTries = 200

// Wait returns nil when w is done, or the error of ctx, or ErrClosed. Meanwhile it drives
// the links if no other goroutine does. One goroutine may wait for w at a time; if two
// sleep, the second gets ErrWaited. Wait does not allocate if w is done soon.
// Hot path.
func (e *Engine) Wait(ctx context.Context, w *Waiter) error { return e.WaitLooking(ctx, w, nil) }

// WaitLooking is Wait with a Looker, which may be nil.
func (e *Engine) WaitLooking(ctx context.Context, w *Waiter, l Looker) error {
	sp := cpu.Spinner{Policy: &e.policy}
	for tries := 0; !w.Done(); {
		if e.tryLock(ownerApp) {
			e.drives++
			more := e.drive(ctx, w, l, &sp)
			e.release()
			if !more {
				break
			}
			e.letIn()
			continue
		}
		if tries++; tries > driverTries || e.owner.Load() == ownerApp {
			break
		}
		cpu.Pause()
	}
	if w.Done() {
		return nil
	}
	return e.park(ctx, w)
}

// drive polls until w is done, the policy of sp or ctx ends, or another goroutine needs
// ownership; only then it returns true, and the caller must try again.
func (e *Engine) drive(ctx context.Context, w *Waiter, l Looker, sp *cpu.Spinner) bool {
	for n := 1; ; n++ {
		if l != nil && e.look(w, l, n) {
			return false
		}
		busy := e.proto.Step()
		if w.Done() {
			e.passed() // without a poll each time, which would delay the result
			return false
		}
		busy = e.pollLinks() || busy
		if w.Done() || e.closed.Load() {
			return false
		}
		if e.want.Load() > 0 {
			return true
		}
		if busy {
			sp.Reset()
		} else if sp.Wait() != 0 && sp.Weary() {
			e.tired.Store(true)
			return false
		}
		if n&63 == 0 && ctx.Err() != nil {
			return false
		}
	}
}

// park waits while other goroutines drive.
func (e *Engine) park(ctx context.Context, w *Waiter) error {
	e.parked.Add(1)
	defer e.parked.Add(-1)
	if bubble.Inside() {
		return e.parkInside(ctx, w.Done)
	}
	if w.ch == nil {
		w.ch = make(chan struct{}, 1)
	}
	if !atomic.CompareAndSwapUint32(&w.state, waitPending, waitParked) {
		if w.Done() {
			return nil
		}
		return ErrWaited
	}
	if e.owner.Load() != ownerApp {
		e.wake() // an application goroutine that drives wakes it at its end
	}
	var err error
	for err == nil {
		select {
		case <-w.ch:
			if w.Done() {
				return nil
			} // otherwise it belongs to a second waiter, which should not have waited
		case <-ctx.Done():
			err = ctx.Err()
		case <-e.quit:
			err = ErrClosed
		}
	}
	if !atomic.CompareAndSwapUint32(&w.state, waitParked, waitPending) {
		<-w.ch // it has ended meanwhile
		return nil
	}
	return err
}

// parkInside is park in a bubble of testing/synctest: goroutines outside must not use
// channels created there, and bells are reused.
func (e *Engine) parkInside(ctx context.Context, done func() bool) error {
	for e.wake(); !done(); bubble.Nap() {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case e.closed.Load():
			return ErrClosed
		}
	}
	return nil
}

// Looker polls only for the event that a goroutine waits for: it loads the word that a peer
// will change.
type Looker interface {
	// Look handles the event if it has occurred, as Protocol.Step would. The owner calls
	// it.
	Look() bool
}

const (
	// looks is the number of calls of Look per round of polls: an event between two of them
	// is seen a few ns later, an event during the round waits for half of it, about 30 ns.
	// More would delay other events.
	looks = 32

	// eagerRounds is the number of rounds with so many looks: 2 to 5 µs, a few round trips.
	// After these, pauses and yields make additional looks useless.
	eagerRounds = 16
)

// look calls l before round n of a wait. It reports whether w is done. At intervals a wait
// that ends in a look has a round nevertheless. Owner's.
// Hot path.
func (e *Engine) look(w *Waiter, l Looker, n int) bool {
	e.AssertOwned()
	if n > eagerRounds {
		return l.Look() && w.Done()
	}
	for range looks {
		if l.Look() && w.Done() {
			e.lucky++
			return n > 1 || e.lucky%looks != 0
		}
		if e.want.Load() > 0 {
			return false
		}
	}
	return false
}
