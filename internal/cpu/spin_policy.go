package cpu

import (
	"fmt"
	"runtime"
)

// SpinPolicy gives the number of polls in each step of a wait, see [Spinner].
type SpinPolicy struct {
	Polls  int // polls without a pause: the lowest latency
	Pauses int // polls with a pause in between
	Yields int // polls with a yield; a caller that can sleep does so afterwards

	Adapt bool // waits sleep or yield at once while other threads use the processor, see Contention
}

// The spin policy of a wait depends on whether the awaited peer can run at the same time.
// With a pause of up to 140 cycles:
var (
	// Roomy is for at least as many processors as ranks. 256 pauses are about 5-10 µs over
	// shared memory: several round trips, and one over a loopback socket, where a poll is a
	// system call. Fewer would yield (0.3 µs, and the processor is lost for a while) within
	// an ordinary round trip. 128 yields take some 50 µs, more than a sleep and a wake-up.
	Roomy = SpinPolicy{Polls: 64, Pauses: 256, Yields: 128, Adapt: true}

	// Crowded is for more ranks than processors. If the peer runs now, it answers within a
	// round trip, which is 1 µs over shared memory and 10 µs over a socket: 48 polls take
	// longer on either. If it does not run, spinning takes time from the ranks ahead of it:
	// eight ranks on two processors made 10 times as many round trips with 24 to 48 polls as
	// with 320. With fewer than 24 the wait misses peers that do run. 1024 yields: a yield gives
	// the processor to the ranks ahead, and costs less than a sleep and a wake-up. With 32, ranks
	// slept once others were late, and then woke each other in turn for as long as they
	// communicated (docs/progress.md). Beside threads that compute, Contention ends the yields.
	Crowded = SpinPolicy{Polls: 48, Yields: 1024, Adapt: true}

	// Single is for ranks that all share one processor: the peer only runs while this side
	// does not.
	Single = SpinPolicy{Yields: 128, Adapt: true}
)

// Default returns the spin policy of a process that has no information on others.
func Default() SpinPolicy {
	if multi {
		return Roomy
	}
	return Single
}

// OneEach is the largest Load at which every rank can have a processor, with room for rounding.
const OneEach = 1 + 1e-9

// Load returns the number of ranks per processor of mine if all ranks of a host wait or
// compute at the same time and each spreads evenly over the processors that it may use. all
// includes mine. An empty set, of a rank that did not report its processors, counts as
// mine.
func Load(mine Set, all []Set) float64 {
	n := mine.Len()
	if n == 0 {
		return 0
	}
	load := 0.0
	for _, s := range all {
		if k := s.Len(); k > 0 {
			load += float64(mine.And(s).Len()) / float64(k)
		} else {
			load++
		}
	}
	return load / float64(n)
}

// For returns the spin policy of a rank with load ranks per processor, see [Load], on a
// host where the ranks have cpus processors in all.
func For(load float64, cpus int) SpinPolicy {
	switch {
	case load == 0 || cpus == 0:
		return Default()
	case load <= OneEach:
		return Roomy // even if this rank has one processor: the peer has another
	case cpus == 1:
		return Single
	}
	return Crowded
}

// Spun returns p with the given number of polls, with and without a pause, before the first
// yield, whatever the load.
func (p SpinPolicy) Spun(polls int) SpinPolicy {
	p.Adapt = false
	p.Polls = min(polls, Roomy.Polls)
	p.Pauses = polls - p.Polls
	return p
}

// String describes the policy: "64 polls, 256 pauses, 128 yields, none beside other load".
func (p SpinPolicy) String() string {
	s := fmt.Sprintf("%d polls, %d pauses, %d yields", p.Polls, p.Pauses, p.Yields)
	if p.Adapt {
		s += ", none beside other load"
	}
	return s
}

// multi says whether spinning can help when nothing else is known: with one processor the
// peer only runs while this side does not.
var multi = runtime.NumCPU() > 1
