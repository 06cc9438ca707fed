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
// Atomics of this rank on one word do not race with each other: those behind a loop wait
// in line, in order, and each loop begins with what its forerunner left. The value last
// seen in a word is what the next loop expects there.

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
	heads [headBuckets]*op // one for each word with any, by hash of its address
	n     int              // heads
	redo  opQueue
	seen  [guesses]guess
}

const headBuckets = 32 // as many words as a Post has requests

// loop is what an emulated atomic needs, in more.
type loop struct {
	rmw   onesided.RMW
	tries int
	since time.Duration // of the engine's clock: when it began to back off
	until time.Duration
	head  bool    // is in loops.heads
	other *op     // the next of its bucket
	line  opQueue // operations on the same word, behind this one
}

func (l *loops) bucket(addr uint64) **op { return &l.heads[addr>>3%headBuckets] }

// find returns the head of the word, nil if there is none.
func (l *loops) find(addr uint64) *op {
	o := *l.bucket(addr)
	for o != nil && o.remote != addr {
		o = o.more.other
	}
	return o
}

// enter makes o the head of its word.
func (l *loops) enter(o *op) {
	b := l.bucket(o.remote)
	o.more.head, o.more.other = true, *b
	*b = o
	l.n++
}

// leave takes the head o away.
func (l *loops) leave(o *op) {
	b := l.bucket(o.remote)
	for *b != o {
		b = &(*b).more.other
	}
	*b = o.more.other
	o.more.head, o.more.other = false, nil
	l.n--
}

// among reports whether one of n bytes from addr on belongs to a word with a head.
func (l *loops) among(addr, n uint64) bool {
	for _, o := range l.heads {
		for ; o != nil; o = o.more.other {
			if o.remote+8 > addr && o.remote < addr+n {
				return true
			}
		}
	}
	return false
}

// contended reports whether an atomic or an accumulate whose turn to be posted has come
// must not overtake one that was handed in before and works on the same word: links carry
// atomics of their own out in order, but loops take several, and accumulates are the
// target's to carry out.
func (p *Peer) contended(o *op) bool {
	switch o.kind {
	case kindEmulated:
		return !o.more.head && p.busy(o.remote)
	case kindFetchAdd, kindCompareSwap:
		return (o.more == nil || !o.more.head) && p.busy(o.remote)
	case kindAccumulate:
		return p.loops.among(o.remote, uint64(len(o.more.acc.src)))
	}
	return false
}

// busy reports whether a loop, or an accumulate, on the word at addr is under way.
func (p *Peer) busy(addr uint64) bool {
	if p.loops.n > 0 && p.loops.find(addr) != nil {
		return true
	}
	for _, a := range p.reduces {
		if addr+8 > a.remote && addr < a.remote+uint64(len(a.more.acc.src)) {
			return true
		}
	}
	return false
}

// lineUp puts the first operation of the list, which is contended, behind the loop on its
// word. It returns false if it has to wait where it is.
func (t *initiator) lineUp(p *Peer, q *opQueue) bool {
	o := q.head
	if o.kind == kindAccumulate {
		return false
	}
	h := p.loops.find(o.remote)
	if h == nil {
		return false
	}
	q.pop().queued = false
	o.extend()
	h.more.line.push(o)
	t.loosen(o)
	return true
}

// begin makes a loop the head of its word.
func (p *Peer) begin(o *op) {
	o.compare = 0
	if g := &p.loops.seen[o.remote>>3%guesses]; g.addr == o.remote {
		o.compare = g.value
	}
	o.aim()
	p.loops.enter(o)
}

// aim sets what the next compare-and-swap of the loop writes.
func (o *op) aim() { o.operand, _ = o.more.rmw.Apply(o.compare) }

// loosen notes that o does not take place in the order of the link's requests.
func (t *initiator) loosen(o *op) {
	if !o.loose {
		o.loose = true
		o.peer.loose++
	}
}

// retry takes the result of a loop's compare-and-swap. It returns true if the loop goes
// on.
func (t *initiator) retry(o *op) bool {
	p, x := o.peer, o.more
	if o.Err != nil {
		return false
	}
	g := &p.loops.seen[o.remote>>3%guesses]
	if o.Value == o.compare {
		*g = guess{o.remote, o.operand}
		return false
	}
	*g = guess{o.remote, o.Value}
	o.compare = o.Value
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

// endLoop lets the next operation on the same word begin. If the connection is no more,
// all of them end.
func (t *initiator) endLoop(o *op) {
	p := o.peer
	p.loops.leave(o)
	line := o.more.line
	o.more.line = opQueue{}
	if o.kind != kindEmulated && o.Err == nil { // a link's own in a line
		now := o.Value + o.operand
		if o.kind == kindCompareSwap {
			if now = o.Value; now == o.compare {
				now = o.operand
			}
		}
		p.loops.seen[o.remote>>3%guesses] = guess{o.remote, now}
	}
	for line.head != nil {
		next := line.pop()
		if p.down != nil {
			t.note(next, p.down)
			t.end(next)
			continue
		}
		next.more.line = line
		if next.kind == kindEmulated {
			p.begin(next)
		} else {
			p.loops.enter(next)
		}
		t.redo(next)
		return
	}
}

// redo queues the next compare-and-swap of a loop.
func (t *initiator) redo(o *op) {
	o.queued = true
	o.peer.loops.redo.push(o)
	t.wake(o.peer)
}

// now is the engine's clock.
func (t *initiator) now() time.Duration { return time.Since(t.began) }

// resume lets loops whose wait is over go on. It reports whether any did.
func (t *initiator) resume() bool {
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
