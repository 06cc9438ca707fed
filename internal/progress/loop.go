package progress

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/seed33544411/rma/internal/cpu"
)

const (
	// minDoze and maxDoze bound the growing intervals at which the progress goroutine
	// checks whether applications still drive: with shorter ones its wake-ups are a
	// noticeable load; with longer ones a peer that needs this side waits noticeably after
	// the application has stopped driving.
	minDoze = 100 * time.Microsecond
	maxDoze = time.Millisecond

	// maxTrust bounds the intervals at which it checks, while goroutines are parked, whether
	// others still drive often: a parked goroutine waits so long after they have stopped.
	maxTrust = 250 * time.Microsecond

	// often is the least mean rate, one drive in so long, at which it trusts in goroutines
	// that drive: those that are parked wait no longer for them than for a thread to be woken.
	often = 16 * time.Microsecond

	// trustRounds is the number of rounds of the progress goroutine over which it takes that
	// rate, and trustDrives the least number of drives in them.
	trustRounds, trustDrives = 64, 8

	// needless is the number of sleeps in sequence that ended without work for the progress
	// goroutine after which it dozes for maxDoze as soon as the application drives. A sleep costs the
	// application a system call when it drives again, and a thread switch. A rank that computes for less
	// than maxDoze between two exchanges of puts with signals needs none.
	needless = 32
)

// drivers is the progress goroutine's account of goroutines that drive while others are
// parked.
type drivers struct {
	rounds int
	drives uint64 // of the engine when the account began
	parks  uint32
	since  time.Time
}

// reliable ends an account, after d drives in all, and begins the next. It reports whether
// others drove so often, and none of them got tired of it and parked, that the parked ones
// do not need the progress goroutine.
func (a *drivers) reliable(e *Engine, d uint64) bool {
	now, parks := time.Now(), e.parks.Load()
	n := d - a.drives
	ok := n >= trustDrives && parks == a.parks && now.Sub(a.since) <= time.Duration(n)*often
	*a = drivers{drives: d, parks: parks, since: now}
	return ok
}

// loop is the state of the progress goroutine, which goroutines continue one after the other
// while there is a relay.
type loop struct {
	eng    *Engine
	timer  *time.Timer
	sp     cpu.Spinner
	seen   uint64 // drives at the last doze
	slice  time.Duration
	acc    drivers
	slept  bool      // since the last poll
	vain   int       // sleeps in sequence after which the first poll found nothing
	asleep bool      // the links are armed
	until  time.Time // end of the sleep
	next   func()    // succeed, made once: a turn allocates nothing
}

// run is the progress goroutine. A panic of the protocol ends the process: no deferred
// function here waits for the goroutine that panics.
func (e *Engine) run() {
	l := &loop{
		eng: e, timer: time.NewTimer(time.Hour), slice: minDoze,
		sp: cpu.Spinner{Policy: &e.policy, Contention: e.contention},
	}
	l.next = func() { succeed(l) }
	l.resume()
}

// resume drives the links until the engine is closed, or another goroutine continues.
func (l *loop) resume() {
	e := l.eng
	for !e.closed.Load() {
		if e.relay.due() {
			pass(l)
			return
		}
		if !l.round() {
			return
		}
	}
	e.relay.leave()
	l.timer.Stop()
	close(e.ended)
}

// round polls once, or rests. It returns false if another goroutine continues l.
func (l *loop) round() (mine bool) {
	e := l.eng
	if l.asleep {
		return l.slumber()
	}
	if e.begun.Load() {
		callOutside(e)
	}
	parks := e.parks.Load()
	if e.naps.on.Load() { // a waiter sleeps on the links, for those parked as well
		d := maxDoze
		if e.parked.Load() > 0 {
			d = maxTrust
		}
		return l.doze(d, parks)
	}
	if !e.tryLock(ownerLoop) {
		if driven(&e.owner) {
			l.polled(false)
			l.acc.rounds = trustRounds
			return l.doze(minDoze, parks)
		}
		return true
	}
	busy := e.pollOnce()
	l.polled(busy)
	d := e.drives
	e.release()
	for e.want.Load() > 0 {
		giveWay()
	}
	l.acc.rounds++
	switch parked := e.parked.Load() > 0; {
	case d != l.seen && !parked:
		l.seen = d
		slice := l.slice
		if l.vain >= needless {
			slice = maxDoze
		}
		l.slice = min(2*slice, maxDoze)
		l.sp.Reset()
		return l.doze(slice, parks)
	case parked && l.acc.rounds >= trustRounds && l.acc.reliable(e, d):
		slice := l.slice
		l.slice, l.acc.rounds = min(2*slice, maxTrust), trustRounds
		l.sp.Reset()
		return l.doze(slice, l.acc.parks)
	}
	l.slice = minDoze
	switch {
	case busy:
		l.sp.Reset()
		e.relay.found()
	case e.relay.on.Load():
		if !e.relay.spins() {
			e.relay.idle = 0
			l.sleep()
		}
	case e.tired.Swap(false), l.sp.Wait() != 0 && l.sp.Weary():
		if e.Err() != nil {
			return l.doze(maxDoze, parks)
		}
		l.sleep()
	}
	return true
}

// polled accounts for a poll that has found work, or for one in vain, or for the application
// polling in the goroutine's place.
func (l *loop) polled(busy bool) {
	switch {
	case busy:
		l.vain = 0
	case l.slept:
		l.vain = min(l.vain+1, needless)
	}
	l.slept = false
}

// giveWay gives a goroutine that waits in Do time to take the engine first. One that polls
// continuously leaves it only a moment between two rounds, which it may miss for as long as
// the links are busy.
func giveWay() {
	cpu.Yield()
	runtime.Gosched()
}

// driven reports whether an application goroutine keeps ownership for longer than it takes
// to post an operation, about a microsecond.
func driven(owner *atomic.Uint32) bool {
	for range driverTries / 8 {
		if owner.Load() != ownerApp {
			return false
		}
		cpu.Pause()
	}
	return true
}

// doze rests for d or until the goroutine is needed. If goroutines are parked, it trusts in
// one that drives, unless one has parked since the number of parks was that given. It returns
// false if another goroutine continues l.
func (l *loop) doze(d time.Duration, parks uint32) (mine bool) {
	e := l.eng
	state := dozing
	if e.parked.Load() > 0 {
		state = trusting
	}
	e.rest.Store(state)
	if e.closed.Load() || e.begun.Load() || e.parks.Load() != parks {
		if !e.rest.CompareAndSwap(state, awake) {
			<-e.nudge
		}
		return true
	}
	if e.relay.on.Load() {
		if _, mine, _ = e.relay.rest(l, d, false); mine {
			e.rest.Store(awake)
		}
		return mine
	}
	l.timer.Reset(d)
	select {
	case <-e.nudge:
	case <-l.timer.C:
		if !e.rest.CompareAndSwap(state, awake) {
			<-e.nudge
		}
	}
	return true
}

// sleep arms the links: the goroutine sleeps in the next rounds, until an event or a wake-up.
func (l *loop) sleep() {
	e := l.eng
	if !e.tryLock(ownerLoop) {
		return
	}
	nap, ok := arm(e)
	if !ok {
		e.release()
		return
	}
	e.rest.Store(asleep)
	e.release()
	if e.closed.Load() || e.begun.Load() {
		e.wake() // Close, or Outside, may have found the goroutine awake
	}
	if nap <= 0 || nap > sleepSlice {
		nap = sleepSlice
	}
	l.asleep, l.slept, l.until = true, true, time.Now().Add(nap)
}

// slumber waits for events with the links armed. It returns false if another goroutine continues l.
func (l *loop) slumber() (mine bool) {
	e := l.eng
	r := &e.relay
	soon := !r.on.Load() && r.look()
	d := time.Until(l.until)
	var ready bool
	var err error
	switch {
	case !r.on.Load():
		if soon {
			d = min(d, lookEvery)
		}
		begun := cpu.Ticks()
		ready, err = e.events.wait(d)
		r.late = r.late || soon && (computes(e) || cpu.Duration(cpu.Ticks()-begun) >= d+lateSleep)
	case r.woke(): // those run first
		r.passed = true
		return true
	default:
		if ready, mine, err = r.rest(l, d, true); !mine {
			return false
		}
		r.look() // not when the turn begins: goroutines that have made it begin still run
	}
	if err != nil && !e.closed.Load() {
		e.fail("wait for events", err)
	} else if !ready && e.rest.Load() == asleep && time.Now().Before(l.until) {
		return true
	}
	l.asleep = false
	e.rest.Store(awake)
	l.sp.Reset()
	l.sp.Patient = true
	return true
	// The next tryLock, of any goroutine, disarms.
}

// arm arms all links, so that the owner may sleep when it has released the engine, for the
// time returned, 0 if without limit. It reports false if there is something to do, or a link
// cannot be armed. Owner's.
func arm(e *Engine) (time.Duration, bool) {
	e.AssertOwned()
	if e.over {
		return 0, false
	}
	watches := e.proto.Watches()
	for _, l := range e.quiets {
		l.Watch(watches)
	}
	for i, l := range e.links {
		quiet, err := l.Arm()
		if err != nil {
			e.fail("arm "+l.Name(), err)
		}
		if err != nil || !quiet {
			if err == nil {
				i++ // Disarm undoes the Arm of this link as well
			}
			e.disarm(i)
			return 0, false
		}
	}
	nap := e.proto.Rest(true)
	// A peer's write between the last poll and Arm causes no event.
	if e.proto.Step() {
		e.disarm(len(e.links))
		return 0, false
	}
	e.armed = true
	return nap, true
}

// fail records the first error because of which the engine cannot sleep.
func (e *Engine) fail(what string, err error) {
	err = fmt.Errorf("progress: %s: %w", what, err)
	e.err.CompareAndSwap(nil, &err)
}
