package initiator

import (
	"errors"
	"math/rand/v2"
	"time"
)

// ErrContention is the error of an emulated atomic that contention kept from succeeding.
var ErrContention = errors.New("word is contended: the atomic was abandoned, without effect")

// An atomic that links do not implement is a loop of compare-and-swaps. Each returns the
// value of the word, which the next one expects. Only the owner of the engine executes the
// loop.
//
// Atomics of this rank on one word do not compete with each other: those behind a loop wait
// in line, in order, and each loop starts with the value that its predecessor left. The
// value last seen in a word is the one that the next loop expects.

const (
	// eagerTries is the number of attempts of a loop without a pause. With few contenders
	// the loop succeeds within these, and a pause would cost more than another round trip.
	eagerTries = 4

	// maxBackoff bounds the wait between two attempts. It spreads out a thousand contenders
	// with a round trip of 1 µs each.
	maxBackoff = time.Millisecond

	// minTries is the least number of attempts before a loop fails, however long they take.
	minTries = 256
)

func (w *words) bucket(addr uint64) **Op { return &w.heads[addr>>3%headBuckets] }

// find returns the head of the word, nil if there is none.
func (w *words) find(addr uint64) *Op {
	o := *w.bucket(addr)
	for o != nil && o.remote != addr {
		o = o.more.other
	}
	return o
}

// enter makes o the head of its word.
func (w *words) enter(o *Op) {
	b := w.bucket(o.remote)
	o.more.head, o.more.other = true, *b
	*b = o
	w.n++
}

// leave removes the head o.
func (w *words) leave(o *Op) {
	b := w.bucket(o.remote)
	for *b != o {
		b = &(*b).more.other
	}
	*b = o.more.other
	o.more.head, o.more.other = false, nil
	w.n--
}

// among reports whether any of the n bytes at addr belongs to a word with a head.
func (w *words) among(addr, n uint64) bool {
	for _, o := range w.heads {
		for ; o != nil; o = o.more.other {
			if o.remote+8 > addr && o.remote < addr+n {
				return true
			}
		}
	}
	return false
}

// guess returns the entry that remembers the value of the word at addr.
func (w *words) guess(addr uint64) *guess { return &w.seen[addr>>3%guesses] }

// begin makes an emulated atomic the head of its word.
func (w *words) begin(o *Op) {
	o.compare = 0
	if g := w.guess(o.remote); g.addr == o.remote {
		o.compare = g.value
	}
	o.operand, _ = o.more.rmw.Apply(o.compare)
	w.enter(o)
}

// contended reports whether an atomic or an accumulate that is next to be posted must wait
// for an earlier one on the same word. Links execute their own atomics in order, but loops
// take several requests, and accumulates are executed by the target.
func (q *Queue) contended(o *Op) bool {
	switch o.kind {
	case Emulated:
		return !o.more.head && q.busy(o.remote)
	case FetchAdd, CompareSwap:
		return (o.more == nil || !o.more.head) && q.busy(o.remote)
	case Accumulate:
		return q.words.among(o.remote, o.more.acc.n)
	}
	return false
}

// busy reports whether a loop on the word at addr, or an accumulate of any of its bytes, is
// in progress.
func (q *Queue) busy(addr uint64) bool {
	if q.words.n > 0 && q.words.find(addr) != nil {
		return true
	}
	for _, o := range q.requests.begun {
		if addr+8 > o.remote && addr < o.remote+o.more.acc.n {
			return true
		}
	}
	return false
}

// lineUp moves the first operation of the list, which is contended, into the line of its
// word. It returns false if the operation must stay in the list.
func (q *Queue) lineUp(l *opList) bool {
	o := l.head
	if o.kind == Accumulate {
		return false
	}
	h := q.words.find(o.remote)
	if h == nil {
		return false
	}
	l.pop().queued = false
	o.extend()
	h.more.line.push(o)
	o.loosen()
	return true
}

// loosen records that o is not executed in the order of the link's requests.
func (o *Op) loosen() {
	if !o.loose {
		o.loose = true
		o.q.loose++
	}
}

// retry handles the result of a loop's compare-and-swap. It returns true if the loop
// continues.
func (o *Op) retry() bool {
	q, x := o.q, o.more
	if o.Err != nil {
		return false
	}
	g := q.words.guess(o.remote)
	if o.Value == o.compare {
		*g = guess{o.remote, o.operand}
		return false
	}
	*g = guess{o.remote, o.Value}
	o.compare = o.Value
	now, ok := x.rmw.Apply(o.compare)
	if !ok {
		return false // the operation only reads the word
	}
	o.operand = now
	q.counts.AtomicRetries++
	if x.tries++; x.tries <= eagerTries {
		o.redo()
		return true
	}
	b := &q.eng.backoff
	at := b.now()
	if x.tries == eagerTries+1 {
		x.since = at
	}
	if x.tries > minTries && at-x.since > q.eng.opt.Contention {
		o.note(ErrContention)
		return false
	}
	x.until = at + rand.N(min(maxBackoff, time.Microsecond<<min(x.tries-eagerTries, 20)))
	b.list = append(b.list, o)
	return true
}

// leaveWord removes the head o, which has ended, and starts the next operation on the word.
// If the connection has ended, it returns all that waited, which are to end.
func (o *Op) leaveWord() (spoiled opList) {
	q := o.q
	q.words.leave(o)
	line := o.more.line
	o.more.line = opList{}
	if o.kind != Emulated && o.Err == nil { // an atomic of the link that waited in line
		now := o.Value + o.operand
		if o.kind == CompareSwap {
			if now = o.Value; now == o.compare {
				now = o.operand
			}
		}
		*q.words.guess(o.remote) = guess{o.remote, now}
	}
	if line.head == nil || q.down != nil {
		return line
	}
	next := line.pop()
	next.more.line = line
	if next.kind == Emulated {
		q.words.begin(next)
	} else {
		q.words.enter(next)
	}
	next.redo()
	return opList{}
}

// redo queues the next compare-and-swap of a loop.
func (o *Op) redo() {
	o.queued = true
	o.q.words.redo.push(o)
	o.q.wake()
}

// now returns the time on the clock of attempts.
func (b *backoff) now() time.Duration { return time.Since(b.began) }
