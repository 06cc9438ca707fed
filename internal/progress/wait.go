package progress

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"github.com/seed33544411/rma/internal/bubble"
	"github.com/seed33544411/rma/internal/cpu"
)

// Waiter states.
const (
	waitPending uint32 = iota
	waitParking        // one goroutine is about to park
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

// Finish marks the work as ended and wakes the waiter. The owner of the engine calls it, once
// per Init; others call Engine.Finish. Unless it returns true, the caller must not access the
// work afterwards. True means that the work was detached and belongs to the caller.
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
func (e *Engine) Wait(ctx context.Context, w *Waiter) error { return e.WaitPolling(ctx, w, nil) }

// WaitPolling is Wait with a Poller, which may be nil.
func (e *Engine) WaitPolling(ctx context.Context, w *Waiter, l Poller) error {
	if w.Done() {
		return nil
	}
	a := aim{one: w}
	if e.await(ctx, &a, l); w.Done() {
		return nil
	}
	defer Crash()
	return e.park(ctx, w)
}

// aim is what a goroutine waits for: one piece of work, or any of several.
type aim struct {
	one   *Waiter
	any   Waiters // if one is nil; the first to look at is start
	start int
}

// done reports whether the aim is reached.
// Hot path.
func (a *aim) done() bool {
	if a.one != nil {
		return a.one.Done()
	}
	return a.any.done(a.start) >= 0
}

// await drives the links, or contends for them, or naps, until a is done or the caller should park.
// Others may interrupt each way before it looks at ctx, however often.
func (e *Engine) await(ctx context.Context, a *aim, l Poller) {
	defer Crash()
	naps := newNapper(e)
	tries := 0
	for first := true; !a.done() && (first || ctx.Err() == nil); first = false {
		if e.tryLock(ownerApp) {
			e.drives++
			naps.sp.Holds = true
			end := e.drive(ctx, a, l, &naps.sp)
			naps.sp.Holds = false
			if end == driveLost {
				tries = 0
				continue
			}
			e.release()
			if end == driveLet {
				for e.want.Load() > 0 && !a.done() && ctx.Err() == nil {
					giveWay()
				}
				continue
			}
			if end == driveTired {
				if !computes(e) && naps.nap(ctx, a) {
					continue
				}
				e.tired.Store(true)
			}
			break
		}
		if e.owner.Load() == ownerApp {
			if !e.contend(ctx, a, &naps.sp) {
				break
			}
			continue
		}
		if tries++; tries > driverTries {
			break
		}
		cpu.Pause()
	}
}

// Crash ends the process if the function that defers it panics: one that drives the links, or calls a function of
// the application with locks held. A callback of the application has panicked, or its context is nil. On the
// progress goroutine that ends the process anyway. A caller that recovered the panic, as servers of net/http do,
// would leave behind an engine that is owned, or a lock that is held, for ever: all later calls would hang.
func Crash() {
	if p := recover(); p != nil {
		go panic(fmt.Sprintf("%v\n\nin a goroutine that drove an rma engine, where it cannot be recovered:\n%s", p, debug.Stack()))
		select {} // until the process has ended
	}
}

// driveRounds is the number of rounds, 5 to 20 µs, after which a goroutine that drives gives in
// to another that has begun to wait, and parks. A wait that long is seldom for an operation
// of its own, and the other would otherwise wait for a hand-over at each operation, for as
// long as these keep the driving goroutine from resting.
const driveRounds = 64

// contend spins while another goroutine drives, until a is done or the engine may be free.
// One goroutine at a time does so. It returns false if the caller should park.
func (e *Engine) contend(ctx context.Context, a *aim, sp *cpu.Spinner) bool {
	if e.heir.Load() || !e.heir.CompareAndSwap(false, true) {
		return false
	}
	for n := 1; !a.done() && e.owner.Load() == ownerApp; n++ {
		if sp.Wait() != 0 && sp.Weary() || n&63 == 0 && ctx.Err() != nil {
			e.heir.Store(false)
			return false
		}
	}
	e.heir.Store(false)
	return true
}

// Ends of drive.
const (
	driveOver  = iota // the aim is reached, or the caller should park
	driveTired        // the policy says to sleep
	driveLet          // another goroutine needs the engine for a moment
	driveLost         // another goroutine has become the owner
)

// drive polls until a is done, the policy of sp or ctx ends, or another goroutine needs
// ownership.
func (e *Engine) drive(ctx context.Context, a *aim, l Poller, sp *cpu.Spinner) (end int) {
	if e.over {
		return driveOver
	}
	for n := 1; ; n++ {
		if l != nil && e.pollEvent(a, l, n) {
			return driveOver
		}
		busy := e.proto.Step()
		if a.done() {
			e.passed() // without a poll each time, which would delay the result
			return driveOver
		}
		busy = e.pollLinks() || busy
		if a.done() || e.closed.Load() {
			return driveOver
		}
		if e.want.Load() > 0 {
			return driveLet
		}
		if n > driveRounds && e.heir.Load() {
			return driveOver
		}
		if busy {
			sp.Reset()
		} else if e.relay.on.Load() {
			if n > driveRounds {
				return driveTired // no yield: threads that compute would run while others need the links
			}
			cpu.Pause()
		} else if sp.Wait() != 0 {
			if sp.Weary() {
				return driveTired
			}
			if sp.Due() && !turn(e, sp) {
				return driveLost
			}
			if e.over {
				return driveOver
			}
		}
		if n&63 == 0 && ctx.Err() != nil {
			return driveOver
		}
	}
}

// turn gives other goroutines of the process a turn, in which they may use the engine: a
// goroutine that computes takes 10 ms or more. It reports whether the caller is the owner again.
func turn(e *Engine, sp *cpu.Spinner) bool {
	lend(e)
	sp.Turn()
	return e.tryLock(ownerApp)
}

// park waits while other goroutines drive.
func (e *Engine) park(ctx context.Context, w *Waiter) error {
	e.beginPark()
	defer e.parked.Add(-1)
	if bubble.Inside() {
		return e.parkInside(ctx, w.Done)
	}
	if !atomic.CompareAndSwapUint32(&w.state, waitPending, waitParking) {
		if w.Done() {
			return nil
		}
		return ErrWaited
	}
	if w.ch == nil {
		w.ch = make(chan struct{}, 1)
	}
	if !atomic.CompareAndSwapUint32(&w.state, waitParking, waitParked) {
		return nil // it has ended meanwhile
	}
	if e.owner.Load() != ownerApp {
		e.rouse() // an application goroutine that drives wakes it at its end
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

func (e *Engine) beginPark() {
	e.parked.Add(1)
	e.parks.Add(1)
}

// parkInside is park in a bubble of testing/synctest: goroutines outside must not use
// channels created there, and bells are reused.
func (e *Engine) parkInside(ctx context.Context, done func() bool) error {
	for e.rouse(); !done(); bubble.Nap() {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case e.closed.Load():
			return ErrClosed
		}
	}
	return nil
}

// Poller polls only for the event that a goroutine waits for: it loads the word that a peer
// will change.
type Poller interface {
	// Poll handles the event if it has occurred, as Protocol.Step would. The owner calls
	// it.
	Poll() bool
}

const (
	// cheapPolls is the number of calls of Poller.Poll per round of polls: an event between two of them
	// is seen a few ns later, an event during the round waits for half of it, about 30 ns.
	// More would delay other events.
	cheapPolls = 32

	// eagerRounds is the number of rounds with so many of them: 2 to 5 µs, a few round trips.
	// After these, pauses and yields make more of them useless.
	eagerRounds = 16
)

// pollEvent calls l before round n of a wait. It reports whether a is done. At intervals a wait
// that such a poll ends has a round nevertheless. Owner's.
// Hot path.
func (e *Engine) pollEvent(a *aim, l Poller, n int) bool {
	e.AssertOwned()
	if n > eagerRounds {
		return l.Poll() && a.done()
	}
	for range cheapPolls {
		if l.Poll() && a.done() {
			e.lucky++
			return n > 1 || e.lucky%cheapPolls != 0
		}
		if e.want.Load() > 0 {
			return false
		}
	}
	return false
}
