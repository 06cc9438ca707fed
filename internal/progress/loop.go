package progress

import (
	"fmt"
	"runtime"
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
)

// loop is the progress goroutine. A panic of the protocol ends the process: no deferred
// function here waits for the goroutine that panics.
func (e *Engine) loop() {
	e.run()
	e.Do(func() {}) // leaves no link armed
	close(e.ended)
}

// run drives the links until the engine is closed.
func (e *Engine) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	sp := cpu.Spinner{Policy: &e.policy}
	var seen uint64
	slice := minDoze
	for !e.closed.Load() {
		if e.begun.Load() {
			e.callOutside()
		}
		if !e.tryLock(ownerLoop) {
			if e.owner.Load() == ownerApp {
				e.doze(timer, minDoze, true)
			}
			continue
		}
		busy := e.pollOnce()
		d := e.drives
		e.release()
		e.letIn()
		if d != seen && e.parked.Load() == 0 {
			seen = d
			e.doze(timer, slice, false)
			slice = min(2*slice, maxDoze)
			sp.Reset()
			continue
		}
		slice = minDoze
		switch {
		case busy:
			sp.Reset()
		case e.tired.Swap(false), sp.Wait() != 0 && sp.Weary():
			if e.Err() != nil {
				e.doze(timer, maxDoze, false)
			} else {
				e.sleep()
			}
			sp.Reset()
		}
	}
}

// letIn lets goroutines that wait in Do have the engine first. A goroutine that polls
// continuously leaves them only a moment between two rounds, which they may miss for as
// long as the links are busy.
func (e *Engine) letIn() {
	for e.want.Load() > 0 {
		cpu.Yield()
		runtime.Gosched()
	}
}

// doze rests for d or until the goroutine is needed. A goroutine that drives when this
// begins wakes it at the end if there are others to drive for. Without such a driver, the
// goroutine must not doze while others are parked.
func (e *Engine) doze(timer *time.Timer, d time.Duration, driven bool) {
	e.rest.Store(dozing)
	if e.parked.Load() > 0 && !(driven && e.owner.Load() == ownerApp) || e.closed.Load() || e.begun.Load() {
		if !e.rest.CompareAndSwap(dozing, awake) {
			<-e.nudge
		}
		return
	}
	timer.Reset(d)
	select {
	case <-e.nudge:
	case <-timer.C:
		if !e.rest.CompareAndSwap(dozing, awake) {
			<-e.nudge
		}
	}
}

// sleep arms the links and waits for their descriptors or a wake-up.
func (e *Engine) sleep() {
	if !e.tryLock(ownerLoop) {
		return
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
			e.release()
			return
		}
	}
	nap := e.proto.Rest(true)
	// A peer's write between the last poll and Arm causes no event.
	if e.proto.Step() {
		e.disarm(len(e.links))
		e.release()
		return
	}
	e.armed = true
	e.rest.Store(asleep)
	e.release()
	if e.closed.Load() || e.begun.Load() {
		e.wake() // Close, or Outside, may have found the goroutine awake
	}
	if err := e.events.wait(nap); err != nil && !e.closed.Load() {
		e.fail("wait for events", err)
	}
	e.rest.Store(awake)
	// The next tryLock, of any goroutine, disarms.
}

// fail records the first error because of which the engine cannot sleep.
func (e *Engine) fail(what string, err error) {
	err = fmt.Errorf("progress: %s: %w", what, err)
	e.err.CompareAndSwap(nil, &err)
}
