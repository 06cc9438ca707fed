package initiator

import (
	"math/bits"

	"github.com/seed33544411/rma/logp"
)

// A put or a get over rails is sent in one of several ways: whole over one of the rails, or
// divided over all of them. For each power of two of sizes the queue compares what they take,
// and tries those that it does not use again and again.

// DivideFrom is the least size in bytes of an operation that is divided.
const DivideFrom = 2 * logp.CutAlign

// WholeFrom is the least size in bytes of an operation that another rail than rail 0 may
// carry: shorter ones take as long over each.
const WholeFrom = 512

// WholeMargin is the least gain, as a share of the time on rail 0, for which another rail
// carries operations whole: what follows them waits until they are complete.
const WholeMargin = 1.0 / 8

const (
	// never is when a rail that cannot be used is free, in ns.
	never = 1e18

	// burst is the number of operations in a row that try a way: while others are in flight
	// on rail 0, only the second one has a known begin.
	burst = 2

	// A way is tried again after turns that double up to lastPause: rails that are shaped are
	// fast for a moment.
	firstPause, pauses = 4, 6
	lastPause          = firstPause << pauses

	// tooSlow is by how much a way must be predicted to be slower than the best one not to be
	// tried at once.
	tooSlow = 4

	// smallTurns is the number of operations of any kind after which those that are too
	// short to be divided may be tried in another way.
	smallTurns = lastPause
)

// trialOf returns the trial of operations of n bytes.
func (x *Rails) trialOf(n uint32) *trial { return &x.tried[bits.Len32(n)&31] }

// choose returns the way of the next operation: one of the set can. timed reports that the
// operation is to be timed; those over rail 0 are not always. want is the predicted time of each
// way in ns.
func (t *trial) choose(can uint, want *[ways]float64) (way int, timed bool) {
	t.turn++
	if t.left > 0 {
		if t.left--; can>>t.other&1 != 0 {
			return t.other, true
		}
	}
	best := t.best(can)
	if best != t.last && best >= 0 { // a moment may have deceived
		t.last, t.tries[best], t.due[best] = best, 0, t.turn+firstPause
	}
	for w := range ways {
		if can>>w&1 == 0 || t.turn < t.due[w] || w == best && w != wayFirst {
			continue
		}
		worse, wait := 1.0, false
		switch {
		case best >= 0 && t.cost[w] != 0:
			worse = t.cost[w] / t.cost[best]
		case t.cost[w] == 0 && t.tries[w] == 0:
			if worse = want[w] / least(can, want); worse > tooSlow {
				wait, t.tries[w] = true, pauses
			}
		}
		// What it costs to try is the same share of the time for each way.
		t.due[w] = t.turn + uint(float64(uint(firstPause)<<t.tries[w])*min(max(worse, 1), lastPause))
		if wait {
			continue
		}
		t.tries[w] = min(t.tries[w]+1, pauses)
		t.other, t.left = w, burst-1
		return w, true
	}
	if best < 0 {
		best = wayFirst
	}
	return best, best != wayFirst
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

// least returns the shortest time of the ways in the set can.
func least(can uint, want *[ways]float64) float64 {
	t := float64(never)
	for w, v := range want {
		if can>>w&1 != 0 {
			t = min(t, v)
		}
	}
	return max(t, 1)
}

// settled reports whether rail 0 is known to be the best way of the set can, and no other is to
// be tried soon.
func (t *trial) settled(can uint) bool {
	for w := range ways {
		if can>>w&1 != 0 && (t.tries[w] < pauses || t.turn >= t.due[w]) {
			return false
		}
	}
	return t.left == 0 && t.best(can) == wayFirst
}

// learn takes a sample of v ns per byte. A stall does not exclude a way.
func (t *trial) learn(way int, v float64) {
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
			t.cost[w], t.due[w], t.tries[w] = 0, 0, 0
		}
	}
	x.look()
}

// look has operations that are too short to be divided try other ways, if it is time.
func (x *Rails) look() { x.small.Store(1<<bits.Len32(DivideFrom) - 1) }

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
	return n >= WholeFrom && q.rails.small.Load()>>bits.Len32(uint32(n))&1 != 0
}
