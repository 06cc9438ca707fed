package rma

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed33544411/rma/internal/onesided"
)

// An atomic that no link has is a loop of compare-and-swaps: each tells what the word
// holds, and the next one expects that. Nobody but the owner takes part.
//
// Loops of this rank on one word do not race with each other: the later ones wait
// behind the first, in order, and each begins with what its forerunner left. The value
// last seen in a word is what the next loop expects there.

const (
	// eagerTries is how often a loop goes on at once: with few contenders it
	// succeeds then, and waiting would cost more than another round trip.
	eagerTries = 4

	// maxBackoff bounds the wait between two tries: a thousand contenders with a
	// round trip of 1 µs each are spread out by it.
	maxBackoff = time.Millisecond

	// minTries is how often a loop tries at least before it gives up, however
	// long that takes.
	minTries = 256

	// guesses is how many words of a peer this side remembers. Power of two.
	guesses = 8
)

// guess is what a word of a peer held when this side saw it last.
type guess struct{ addr, value uint64 }

// loops is what a peer's emulated atomics need.
type loops struct {
	heads []*op // one for each word with any
	redo  opQueue
	seen  [guesses]guess
}

// loop is what an emulated atomic needs, in more.
type loop struct {
	rmw   onesided.RMW
	tries int
	since time.Duration // of the engine's clock: when it began to back off
	until time.Duration
	line  opQueue // loops on the same word, behind this one
}

// queueLoop takes a loop over. It returns false if it waits behind another.
func (t *proto) queueLoop(p *Peer, o *op) bool {
	l := &p.loops
	if p.fences == 0 { // else what came before a fence must not take it along
		for _, h := range l.heads {
			if h.remote == o.remote {
				h.more.line.push(o)
				t.loosen(o)
				return false
			}
		}
	}
	o.compare = 0
	if g := &l.seen[o.remote>>3%guesses]; g.addr == o.remote {
		o.compare = g.value
	}
	o.aim()
	l.heads = append(l.heads, o)
	return true
}

// aim sets what the next compare-and-swap of the loop writes.
func (o *op) aim() { o.operand, _ = o.more.rmw.Apply(o.compare) }

// loosen notes that o does not take place in the order of the link's requests.
func (t *proto) loosen(o *op) {
	if !o.loose {
		o.loose = true
		o.peer.loose++
	}
}

// retry takes the result of a loop's compare-and-swap. It returns true if the loop goes
// on.
func (t *proto) retry(o *op) bool {
	p, x := o.peer, o.more
	if o.err != nil {
		return false
	}
	g := &p.loops.seen[o.remote>>3%guesses]
	if o.value == o.compare {
		*g = guess{o.remote, o.operand}
		return false
	}
	*g = guess{o.remote, o.value}
	o.compare = o.value
	now, ok := x.rmw.Apply(o.compare)
	if !ok {
		return false // it read the word, and that is all there is to do
	}
	o.operand = now
	p.counts.AtomicRetries++
	if x.tries++; x.tries <= eagerTries {
		t.redo(o)
		return true
	}
	at := t.now()
	if x.tries == eagerTries+1 {
		x.since = at
	}
	if x.tries > minTries && at-x.since > p.eng.cfg.PeerTimeout {
		t.note(o, ErrContention)
		return false
	}
	x.until = at + rand.N(min(maxBackoff, time.Microsecond<<min(x.tries-eagerTries, 20)))
	t.later = append(t.later, o)
	return true
}

// endLoop lets the next loop on the same word begin.
func (t *proto) endLoop(o *op) {
	p := o.peer
	if i := slices.Index(p.loops.heads, o); i >= 0 {
		p.loops.heads = slices.Delete(p.loops.heads, i, i+1)
	}
	line := o.more.line
	o.more.line = opQueue{}
	if line.head == nil {
		return
	}
	next := line.pop()
	next.more.line = line
	if p.down != nil {
		t.note(next, p.down)
		t.end(next) // as many deep as there are: each is a stack frame of little
		return
	}
	next.compare = p.loops.seen[next.remote>>3%guesses].value
	next.aim()
	p.loops.heads = append(p.loops.heads, next)
	t.redo(next)
}

// redo queues the next compare-and-swap of a loop.
func (t *proto) redo(o *op) {
	o.queued = true
	o.peer.loops.redo.push(o)
	t.wake(o.peer)
}

// now is the engine's clock.
func (t *proto) now() time.Duration { return time.Since(t.began) }

// resume lets loops whose wait is over go on. It reports whether any did.
func (t *proto) resume() bool {
	at := t.now()
	n := len(t.later)
	t.later = slices.DeleteFunc(t.later, func(o *op) bool {
		switch p := o.peer; {
		case p.down != nil:
			t.note(o, p.down)
			t.end(o)
		case at < o.more.until:
			return false
		default:
			t.redo(o)
		}
		return true
	})
	return len(t.later) < n
}
