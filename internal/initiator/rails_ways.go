package initiator

import (
	"math/bits"
	"time"

	"github.com/seed33544411/rma/logp"
)

// A put or a get over rails is sent in one of several ways: whole over one of the rails, or
// divided over all of them. For each power of two of sizes the queue compares what they take,
// and tries those that it does not use again and again.

// DivideFrom is the least size in bytes of an operation that is divided.
const DivideFrom = 2 * logp.CutAlign

// PiecesFrom is the least mean size in bytes of pieces of vectors and shapes that use the rails, one
// by one: halves of shorter ones tell nothing about the rates of the rails, and many are in flight
// before the better rail is known.
const PiecesFrom = 64 << 10

// WholeFrom is the least size in bytes of an operation that another rail than rail 0 may
// carry: shorter ones take as long over each.
const WholeFrom = 512

// WholeMargin is the least gain, as a share of the time on rail 0, for which another rail
// carries operations whole: what follows them waits until they are complete.
const WholeMargin = 1.0 / 8

const (
	// never is when a rail that cannot be used is free, in ns.
	never = 1e18

	// burst is the least number of operations by which the time of a way is measured, besides
	// as many as are in flight: they end in pairs or in groups, some at once after others.
	burst = 2

	// longest bounds a trial, in operations, by its expected length.
	longest = 4

	// A way is tried again after turns that double up to lastPause: rails that are shaped are
	// fast for a moment.
	firstPause, pauses = 32, 3
	lastPause          = firstPause << pauses

	// tooSlow is by how much a way must have become slower than the best one, by prediction, not
	// to be tried when it is due, but later.
	tooSlow = 3

	// smallTurns is the number of operations of any kind after which those that are too
	// short to be divided may be tried in another way.
	smallTurns = lastPause
)

// trialOf returns the trial of operations of n bytes.
func (x *Rails) trialOf(n uint32) *trial { return &x.tried[bits.Len32(n)&31] }

// choose returns the way of the next operation: one of the set can. timed reports that the
// operation is to be timed; those over rail 0 are not always. want is the predicted time of each
// way in ns per byte, from rates that were measured if known is set, inFlight the number of operations in
// flight.
func (t *trial) choose(can uint, want *[ways]float64, known bool, inFlight int) (way int, timed bool) {
	t.turn++
	if t.left > 0 {
		if t.left--; can>>t.other&1 != 0 {
			return t.other, true
		}
		t.left = 0
	}
	best, first := t.best(can), fastest(can, want)
	if best != t.last && best >= 0 { // a moment may have deceived
		t.last, t.tries[best], t.since[best], t.pause[best] = best, 0, t.turn, firstPause
	}
	t.depth = max(t.depth, inFlight)
	n := uint(2*t.depth + burst) // of a trial: until those in flight have ended, and their successors have begun
	for w := ways - 1; w >= 0; w-- {
		if can>>w&1 == 0 || !t.due(w, n, first == wayFirst && want[w] == want[first]) || w == best && w != wayFirst {
			continue
		}
		worse := 1.0
		if known {
			worse = max(want[w]/want[first], 1)
		}
		if best >= 0 && t.cost[w] != 0 {
			worse = max(worse, t.cost[w]/t.cost[best])
		}
		slow := worse > tooSlow && worse > 2*t.worse[w] // it has become so since it was due last
		wait := slow || known && w != first && t.worse[w] == 0
		if t.worse[w] = worse; slow {
			t.tries[w] = pauses
		}
		// What it costs to try is the same share of the time for each way.
		t.since[w], t.pause[w] = t.turn, uint(float64(uint(firstPause)<<t.tries[w])*min(worse, lastPause))
		if wait {
			continue
		}
		t.tries[w] = min(t.tries[w]+1, pauses)
		t.other, t.left, t.depth = w, longest*int(n)-1, inFlight
		return w, true
	}
	switch w := t.promising(can, want); {
	case known && w >= 0 && (best < 0 || want[w] < t.cost[best]):
		return w, true
	case best < 0:
		return first, first != wayFirst
	}
	return best, best != wayFirst
}

// promising returns the way that is predicted to be the fastest of those of the set can whose
// time is not known, -1 if there are none.
func (t *trial) promising(can uint, want *[ways]float64) int {
	for w, c := range t.cost {
		if c != 0 {
			can &^= 1 << w
		}
	}
	if can == 0 {
		return -1
	}
	return fastest(can, want)
}

// due reports whether a way is to be tried, by n operations. One that a trial has told nothing about,
// because more operations were in flight than before, is soon, if nothing is known of the rails.
func (t *trial) due(w int, n uint, blind bool) bool {
	pause := n / burst * t.pause[w]
	if t.cost[w] == 0 && blind {
		pause /= firstPause / 4
	}
	return t.turn-t.since[w] >= pause
}

// best returns the fastest way of the set can, -1 if none is known.
func (t *trial) best(can uint) int {
	best := -1
	for w, c := range t.cost {
		if can>>w&1 == 0 || c == 0 {
			continue
		}
		margin := logp.CutMargin
		if w < wayDivided {
			margin = WholeMargin
		}
		if best < 0 || c < t.cost[best]*(1-margin) {
			best = w
		}
	}
	return best
}

// fastest returns the way of the set can that is predicted to take the least time: a rail with a
// lower number before others, and before all together.
func fastest(can uint, want *[ways]float64) int {
	best := wayFirst
	for w, v := range want {
		if can>>w&1 != 0 && (can>>best&1 == 0 || v < want[best]) {
			best = w
		}
	}
	return best
}

// settled reports whether rail 0 is known to be the best way of the set can, and no other is to
// be tried soon.
func (t *trial) settled(can uint) bool {
	for w := range ways {
		if can>>w&1 != 0 && (t.tries[w] < pauses || t.due(w, burst, false)) {
			return false
		}
	}
	return t.left == 0 && t.best(can) == wayFirst
}

// inFlight returns the number of operations in flight, counting requests of others on rail 0.
func (x *Rails) inFlight() int { return x.open + x.q.inflight - x.rail[0].inflight }

// kind returns the way of an operation, or that it is a probe.
func (d *divided) kind() int {
	if d.probe {
		return ways
	}
	return d.way
}

// mix notes whether operations of different kinds are in flight until now: what ends since then
// tells nothing about one of them.
func (x *Rails) mix(now time.Time) {
	n := 0
	for w, k := range x.by {
		if k > 0 || w == wayFirst && x.q.inflight > x.rail[0].inflight {
			n++
		}
	}
	if n > 1 {
		x.mixed = now
	}
}

// sample takes the time of an operation, in ns from the end of the one before. batch is the
// number of those that make a sample.
func (t *trial) sample(way int, bytes, ns float64, batch int) {
	s := &t.series
	if s.way != way {
		*s = series{way: way}
	}
	s.n++
	s.bytes += bytes
	s.ns += ns
	if s.n >= batch {
		t.learn(way, s.ns/s.bytes)
		*s = series{way: way}
	}
}

// learn takes a sample of v ns per byte, and ends the trial of the way. A stall does not
// exclude a way.
func (t *trial) learn(way int, v float64) {
	if way == t.other {
		t.left = 0
	}
	c := &t.cost[way]
	if *c == 0 {
		*c = v
	}
	*c += (min(v, outlier**c) - *c) / 2
}

// forget gives up what is known of all ways that use a rail, which has come or gone.
func (x *Rails) forget(i int) {
	for k := range x.tried {
		t := &x.tried[k]
		for _, w := range []int{i, wayDivided} {
			t.cost[w], t.pause[w], t.tries[w], t.worse[w] = 0, 0, 0, 0
		}
	}
	x.look()
}

// look has operations that are too short to be divided try other ways, if it is time.
func (x *Rails) look() { x.q.small.Store(1<<bits.Len32(DivideFrom) - 1) }

// turn counts an operation.
func (x *Rails) turn() {
	if x.some {
		if x.turns++; x.turns%smallTurns == 0 {
			for k := range bits.Len32(DivideFrom) {
				x.tried[k].turn += smallTurns
			}
			x.look()
		}
	}
}

// Elsewhere reports whether operations of n bytes, too few to be divided, may be sent over
// another rail than rail 0: they need keys of all rails. Any goroutine may call it.
// Hot path.
func Elsewhere(q *Queue, n int) bool {
	return n >= WholeFrom && q.small.Load()>>bits.Len32(uint32(n))&1 != 0
}
