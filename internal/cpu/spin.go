package cpu

import "runtime"

// defaultSpins is how often Wait pauses before it yields, where there is more
// than one processor. A pause is up to 140 cycles, so 256 are about 5-10 µs:
// several round trips over shared memory, one over a loopback socket. Fewer
// would yield (0.3 µs and a possible context switch) within an ordinary round
// trip; more would burn what an oversubscribed peer needs to answer.
const defaultSpins = 256

// spinPolls is how many polls a Wait without a pause lasts at most: the first
// few misses cost nothing but the poll itself, for the lowest latency.
const spinPolls = 64

// Spinner is the state of one wait. The zero value is ready; Reset it whenever
// the wait succeeded. Not for concurrent use.
//
//	for !done() {
//		if sp.Wait() >= limit { sleep on an event }
//	}
type Spinner struct {
	n      int
	yields int
}

// multi is whether spinning can help at all: with one processor the peer only
// runs when we do not.
var multi = runtime.NumCPU() > 1

// Wait waits a moment: at first not at all, then a pause, then a yield. It
// returns how often it has yielded since Reset, for the caller to decide when
// to sleep instead.
func (s *Spinner) Wait() int {
	s.n++
	switch {
	case !multi:
	case s.n <= spinPolls:
		return 0
	case s.n <= spinPolls+defaultSpins:
		Pause()
		return 0
	}
	s.yields++
	Yield()
	if s.yields&3 == 0 {
		// Other goroutines of this process deserve a turn as well, even where
		// GOMAXPROCS is 1. Not every time: with nothing else to run it costs as
		// much as the yield. Nor seldom: on a busy host each yield may last a
		// time slice.
		runtime.Gosched()
	}
	return s.yields
}

// Reset starts a new wait.
func (s *Spinner) Reset() { *s = Spinner{} }
