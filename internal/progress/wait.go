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

// Waiter is the end of one piece of work. Init it before use; it may be reused
// after it is done and nobody waits for it any more.
type Waiter struct {
	state uint32        // atomically
	ch    chan struct{} // made when somebody parks, and kept
}

// Init makes w ready for its next use.
func (w *Waiter) Init() {
	// Who asked about the use before, a cancellation say, may be looking still.
	cpu.StoreRelease32(&w.state, waitPending)
}

// Done reports whether the work has ended; what the finisher wrote before
// Finish may be read then.
func (w *Waiter) Done() bool { return atomic.LoadUint32(&w.state) == waitDone }

// Finish marks the work as ended and wakes who waits. Once an Init; unless it
// returns true the finisher must not touch the work afterwards. True means that
// the work was detached and is the finisher's.
func (w *Waiter) Finish() (detached bool) {
	switch atomic.SwapUint32(&w.state, waitDone) {
	case waitParked:
		select {
		case w.ch <- struct{}{}:
		default: // two wait, against the rules, and one has been woken already
		}
	case waitDetached:
		return true
	}
	return false
}

// Detach says that nobody will wait: the finisher takes care of the work. False
// means that it has ended already and stays the caller's. Nobody may be waiting.
func (w *Waiter) Detach() bool {
	return atomic.CompareAndSwapUint32(&w.state, waitPending, waitDetached)
}

// driverTries is how often a goroutine that waits tries to become the owner
// while the progress goroutine is polling: a round of polls of idle links lasts
// well below a microsecond.
const driverTries = 200

// Wait returns nil when w is done, driving the links meanwhile if nobody else
// does, or the error of ctx, or ErrClosed. One goroutine may wait for w at a
// time; of two that sleep the second gets ErrWaited. It does not allocate when w is done soon.
// Hot path.
func (e *Engine) Wait(ctx context.Context, w *Waiter) error { return e.WaitLooking(ctx, w, nil) }

// WaitLooking is Wait with a shorter way to see what is waited for, which may be nil.
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

// drive polls until w is done, the policy of sp or ctx ends, or somebody
// wants ownership; only then it returns true: try again.
func (e *Engine) drive(ctx context.Context, w *Waiter, l Looker, sp *cpu.Spinner) bool {
	for n := 1; ; n++ {
		if l != nil && e.look(w, l, n) {
			return false
		}
		busy := e.proto.Step()
		if w.Done() {
			e.passed() // polling every time would keep what has come waiting
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

// park waits while others drive.
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
		e.wake() // an application goroutine that drives does it at its end
	}
	var err error
	for err == nil {
		select {
		case <-w.ch:
			if w.Done() {
				return nil
			} // else it was left behind for who should not have waited
		case <-ctx.Done():
			err = ctx.Err()
		case <-e.quit:
			err = ErrClosed
		}
	}
	if !atomic.CompareAndSwapUint32(&w.state, waitParked, waitPending) {
		<-w.ch // it is done after all
		return nil
	}
	return err
}

// parkInside is park in a bubble of testing/synctest: nobody outside may ring a bell
// that was made there, and bells are used again.
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

// Looker polls for what a goroutine waits for, and for nothing else: it loads the word
// that a peer will change.
type Looker interface {
	// Look takes what is there, as Protocol.Step would. Called by the owner.
	Look() bool
}

const (
	// looks is how many looks there are for each round of the links and the rest: what
	// comes between two of them is seen a few ns later, what comes in a round waits for
	// half of it, some 30 ns. More would keep what others wait for from being seen.
	looks = 32

	// eagerRounds is how many rounds have so many looks: 2 to 5 us, a few round trips.
	// Afterwards pauses and yields make a look more no gain.
	eagerRounds = 16
)

// look looks for what w waits for, before round n of a wait. It reports whether w is
// done. Waits that all end in looks have a round now and then all the same. Owner's.
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
