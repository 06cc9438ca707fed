package cpu

import "runtime"

// Spinner is the state of one wait. The zero value is ready and uses [Default]; call Reset
// after each successful wait. Not for concurrent use.
//
//	for !done() {
//		if sp.Wait() >= limit { sleep on an event }
//	}
type Spinner struct {
	Policy *SpinPolicy // nil: Default
	// Locked says that the goroutine is locked to its thread: runtime.Gosched then takes two
	// thread switches and gives other goroutines no turn.
	Locked bool

	n      int
	yields int
}

var byDefault = Default()

// Wait makes one short step of the wait: at first none, then a pause, then a yield. It
// returns the number of yields since Reset, by which the caller decides when to sleep
// instead.
func (s *Spinner) Wait() int {
	p := s.Policy
	if p == nil {
		p = &byDefault
	}
	s.n++
	switch {
	case s.n <= p.Looks:
		return 0
	case s.n <= p.Looks+p.Pauses:
		Pause()
		return 0
	}
	s.yields++
	Yield()
	if s.yields&3 == 0 && !s.Locked {
		// Other goroutines of this process need a turn as well, even if GOMAXPROCS is 1. Not
		// every time: with nothing else to run, Gosched takes as long as the yield. Nor seldom:
		// on a busy host each yield may last a time slice.
		runtime.Gosched()
	}
	return s.yields
}

// Weary reports whether the wait has yielded as often as its policy allows, so that the
// caller should sleep if it can.
func (s *Spinner) Weary() bool {
	p := s.Policy
	if p == nil {
		p = &byDefault
	}
	return s.yields >= p.Yields
}

// Reset starts a new wait.
func (s *Spinner) Reset() { s.n, s.yields = 0, 0 }
