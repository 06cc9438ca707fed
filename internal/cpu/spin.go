package cpu

import "runtime"

// Spinner is the state of one wait. The zero value is ready, and as patient as
// [Default]; Reset it whenever the wait succeeded. Not for concurrent use.
//
//	for !done() {
//		if sp.Wait() >= limit { sleep on an event }
//	}
type Spinner struct {
	Policy *SpinPolicy // nil: Default
	// Locked is for a goroutine that is locked to its thread: runtime.Gosched costs
	// it two changes of threads, so others of the process get no turn by it.
	Locked bool

	n      int
	yields int
}

var byDefault = Default()

// Wait waits a moment: at first not at all, then a pause, then a yield. It
// returns how often it has yielded since Reset, for the caller to decide when
// to sleep instead. Short.
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
		// Other goroutines of this process deserve a turn as well, even where
		// GOMAXPROCS is 1. Not every time: with nothing else to run it costs as
		// much as the yield. Nor seldom: on a busy host each yield may last a
		// time slice.
		runtime.Gosched()
	}
	return s.yields
}

// Weary reports whether the wait has yielded as often as its policy allows:
// time to sleep, for those who can.
func (s *Spinner) Weary() bool {
	p := s.Policy
	if p == nil {
		p = &byDefault
	}
	return s.yields >= p.Yields
}

// Reset starts a new wait.
func (s *Spinner) Reset() { s.n, s.yields = 0, 0 }
