package progress

import (
	"fmt"
	"runtime"
	"time"

	"github.com/seed33544411/rma/internal/cpu"
)

const (
	// The progress goroutine looks whether applications still drive after
	// minDoze, then less and less often up to maxDoze: below, its wake-ups
	// show as load; above, a peer that needs this side waits noticeably when
	// the application has turned to something else.
	minDoze = 100 * time.Microsecond
	maxDoze = time.Millisecond
)

// loop is the progress goroutine. A panic of the protocol ends the process: nothing is
// deferred here that would wait for the goroutine that panics.
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

// letIn lets goroutines that wait in Do have the engine first. Whoever polls
// again and again would leave them a moment between two rounds only, which they
// may miss for as long as the links are busy.
func (e *Engine) letIn() {
	for e.want.Load() > 0 {
		cpu.Yield()
		runtime.Gosched()
	}
}

// doze rests for d or until somebody needs the goroutine. Whoever drives when
// this begins wakes it at the end if there are others to drive for; where
// there is no such driver, the goroutine must not doze while others are parked.
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
				i++ // Arm was called: Disarm ends what it began
			}
			e.disarm(i)
			e.release()
			return
		}
	}
	nap := e.proto.Rest(true)
	// What a peer wrote between the last look and Arm is no event.
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
	// The next tryLock, ours or another's, disarms.
}

// fail notes the first reason for which the engine cannot sleep.
func (e *Engine) fail(what string, err error) {
	err = fmt.Errorf("progress: %s: %w", what, err)
	e.err.CompareAndSwap(nil, &err)
}
