package cpu

import (
	"fmt"
	"runtime"
)

// SpinPolicy gives the length of the steps of a wait, see [Spinner].
type SpinPolicy struct {
	Looks  int // that follow each other at once: the lowest latency
	Pauses int // looks with a pause in between
	Yields int // after which whoever can sleep should
}

// The spin policy of a wait depends on whether the peer that it waits for can run at
// the same time. With a pause of up to 140 cycles:
var (
	// Roomy is for as many processors as ranks, or more. 256 pauses are about
	// 5-10 µs over shared memory: several round trips, and one over a loopback
	// socket, where a look is a system call. Fewer would yield (0.3 µs, and the
	// processor gone for a while) within an ordinary round trip. 128 yields are
	// some 50 µs, more than a sleep and a wake-up cost.
	Roomy = SpinPolicy{Looks: 64, Pauses: 256, Yields: 128}

	// Crowded is for more ranks than processors. The peer runs now, and answers
	// within a round trip, which is 1 µs over shared memory and 10 µs over a
	// socket: 48 looks take longer on either. Or it does not run, and what is spun
	// away is taken from those who could let it: eight ranks on two processors made
	// 10 times as many round trips with 24 to 48 looks as with 320. Less than 24
	// misses peers that do run. 32 yields: each lasts as long as the others run, and
	// whoever sleeps gets the processor back sooner than who stands in line with
	// those that compute.
	Crowded = SpinPolicy{Looks: 48, Yields: 32}

	// Single is for ranks that all share one processor: the peer only runs when
	// this side does not.
	Single = SpinPolicy{Yields: 128}
)

// Default is the spin policy of a process that knows nothing of others.
func Default() SpinPolicy {
	if multi {
		return Roomy
	}
	return Single
}

// Load is how many ranks there are to a processor of mine, when all ranks of a host
// wait or compute at the same time: each spreads evenly over the processors that
// it may use. mine is one of all. An empty set is of a rank that did not say: it
// counts as one that may use what this one may.
func Load(mine Set, all []Set) float64 {
	n := mine.Len()
	if n == 0 {
		return 0
	}
	load := 0.0
	for _, s := range all {
		if k := s.Len(); k > 0 {
			load += float64(mine.Common(s)) / float64(k)
		} else {
			load++
		}
	}
	return load / float64(n)
}

// For is the spin policy of a rank with load ranks to each of its processors, see
// [Load], on a host where the ranks have cpus processors in all.
func For(load float64, cpus int) SpinPolicy {
	switch {
	case load == 0 || cpus == 0:
		return Default()
	case load <= 1+1e-9:
		return Roomy // also where this rank has one processor: the peer has another
	case cpus == 1:
		return Single
	}
	return Crowded
}

// Spun is p with that many looks, with and without a pause, before the first yield.
func (p SpinPolicy) Spun(looks int) SpinPolicy {
	p.Looks = min(looks, Roomy.Looks)
	p.Pauses = looks - p.Looks
	return p
}

// String is for people: "64 looks, 256 pauses, 128 yields".
func (p SpinPolicy) String() string {
	return fmt.Sprintf("%d looks, %d pauses, %d yields", p.Looks, p.Pauses, p.Yields)
}

// multi is whether spinning can help at all where nothing else is known: with one
// processor the peer only runs when we do not.
var multi = runtime.NumCPU() > 1
