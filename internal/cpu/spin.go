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
	// Contention makes the wait end early while other threads want the processor, or yield
	// at once while they take turns with this one, and finds out whether they do. For callers
	// that sleep when Weary says so; may be nil.
	Contention *Contention
	// Locked says that the goroutine is locked to its thread: runtime.Gosched then takes two
	// thread switches and gives other goroutines no turn.
	Locked bool
	// Patient, until Reset, spins as the policy says although the processor is shared. For
	// callers that an event has woken which was not for them: whoever causes such events, as
	// by a stream of puts, would pay for a wake-up each time.
	Patient bool
	// Holds says that the caller has what other goroutines of this process need, so that it
	// should call Turn itself, without it, when Due says so.
	Holds bool

	// Apart says that the awaited thread should run at the same time as the caller: if yields
	// find it on the same processor, wait after wait, the calling thread moves to another one,
	// as [Leave] does. The system may leave two threads that wait for each other on one
	// processor, and another one idle, for 50 ms. Without Contention.
	Apart bool

	n      int
	met    int // yields that ran a thread that yields soon, less the others
	yields int
	shared bool // the processor is: this wait does not yield any more
	due    bool
}

var byDefault = Default()

// Wait makes one short step of the wait: at first none, then a pause, then a yield. It
// returns 0, or for a yield the number of yields since Reset, by which the caller decides
// when to sleep instead.
func (s *Spinner) Wait() int {
	p := s.Policy
	if p == nil {
		p = &byDefault
	}
	s.n++
	switch {
	case s.n == 1 && s.Contention != nil && !s.Patient && s.Contention.Shared():
		s.shared = true
		return 0
	case s.shared:
		s.yields++
		return s.yields
	case s.Contention != nil && s.Contention.TakesTurns(): // yield
	case s.n <= p.Polls:
		return 0
	case s.n <= p.Polls+p.Pauses:
		Pause()
		return 0
	}
	s.yields++
	if s.Contention == nil && !s.Apart {
		Yield()
	} else if s.Contention == nil {
		begun := Ticks()
		if Yield(); s.meets(Ticks() - begun) {
			Leave()
		}
	} else if s.shared = s.Contention.yield(); s.shared {
		return s.yields
	}
	if s.yields&3 == 0 && !s.Locked && (s.Contention == nil || !s.Contention.Computes()) {
		// Other goroutines of this process need a turn as well, even if GOMAXPROCS is 1. Not
		// every time: with nothing else to run, Gosched takes as long as the yield. Nor seldom:
		// on a busy host each yield may last a time slice.
		if s.due = s.Holds; !s.due {
			s.Turn()
		}
	}
	return s.yields
}

// meetings is the number of yields to a thread that yields soon after which the two should not
// share a processor. Third threads run by chance seldom cause as many.
const meetings = 8

// meets counts a yield that took so many ticks, and reports whether the caller should leave.
func (s *Spinner) meets(took int64) bool {
	empty := emptyYield()
	switch {
	case took < int64(turnYield*float64(empty)) || took >= shortYield*empty:
		s.met = max(s.met-1, 0)
		return false
	case s.met < meetings-1:
		s.met++
		return false
	}
	s.met = 0
	return true
}

// Due reports whether the caller, which Holds, should call Turn.
func (s *Spinner) Due() bool { return s.due }

// Turn gives other goroutines of this process a turn. If these compute, waits with the same
// Contention give them no more turns for a while, until they are Weary: each takes 10 to 20 ms
// for each goroutine that computes, and what a peer asks for soon is then late.
func (s *Spinner) Turn() {
	s.due = false
	if s.Contention == nil {
		runtime.Gosched()
		return
	}
	s.Contention.turn()
}

// Weary reports whether the wait has yielded as often as its policy allows, or the processor
// is wanted by others, so that the caller should sleep if it can.
func (s *Spinner) Weary() bool {
	p := s.Policy
	if p == nil {
		p = &byDefault
	}
	return s.shared || s.yields >= p.Yields
}

// Reset starts a new wait.
func (s *Spinner) Reset() { s.n, s.yields, s.shared, s.due, s.Patient = 0, 0, false, false, false }
