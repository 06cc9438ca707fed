package initiator

import (
	"github.com/seed33544411/rma/logp"
)

// Max returns how many bytes one request may move. Any goroutine may call it.
func (q *Queue) Max() uint64 { return q.max }

// Immediate reports whether requests are often complete when the post returns. Any
// goroutine may call it.
func (q *Queue) Immediate() bool { return q.immediate }

// wake adds q to the queues with something to post, once it has a connection.
func (q *Queue) wake() {
	if q.ep == nil {
		q.host.Connect()
		return
	}
	if !q.active {
		q.active = true
		q.eng.active = append(q.eng.active, q)
	}
}

// Explain returns how n puts or gets with the given sum of bytes would be sent, and why.
// With mapped memory they need neither method. Owner's.
func (q *Queue) Explain(k Kind, n, bytes int) logp.PiecesPlan {
	q.eng.prog.AssertOwned()
	return q.groups.plan(k, n, bytes)
}

// Busy reports whether operations are in flight.
func (q *Queue) Busy() bool { return q.flushes.open > 0 }

// Unflushed reports whether a flush has something to wait for or to report.
func (q *Queue) Unflushed() bool { return q.flushes.open > 0 || q.flushes.forgotten.Load() != nil }

// Blame keeps the error of an operation without a waiter for the next flush. Any goroutine
// may call it.
func (q *Queue) Blame(err error) { q.flushes.forgotten.CompareAndSwap(nil, &err) }

// Queued returns the number of operations that are not posted.
func (q *Queue) Queued() int { return q.posts.len() }

// InFlight returns the number of requests that are posted and not complete.
func (q *Queue) InFlight() int { return q.inflight }

// Rails returns the connections of the queue. Owner's.
func (q *Queue) Rails() *Rails {
	q.eng.prog.AssertOwned()
	return &q.rails
}

// Counts returns the counters.
func (q *Queue) Counts() Counts { return q.counts }

// Used returns a number that grows with each operation that was tried or has ended.
func (q *Queue) Used() uint64 {
	c := &q.counts
	return uint64(q.tried) + c.Puts + c.Gets + c.Atomics + c.Signals + c.Accumulates
}

// Order is a Queue as seen by the messages to the same peer, which do not overtake its operations.
// Its methods are the owner's.
type Order Queue

// Last returns the place of the last operation in the order of the queue. free: a message that is
// sent now follows it, and all before it.
// Hot path.
func (x *Order) Last() (place uint32, free bool) {
	x.eng.prog.AssertOwned()
	return x.last, x.posts.head == nil && !x.unplaced()
}

// Passed reports whether a message that is sent now follows the operation at place, and all before it.
func (x *Order) Passed(place uint32) bool {
	x.eng.prog.AssertOwned()
	return !x.unplaced() && (x.posts.head == nil || int32(x.posts.head.place-place) > 0)
}

// unplaced reports whether something that is posted is not placed in the order of the link: messages
// to this rank itself do not travel over it.
func (x *Order) unplaced() bool { return x.groups.open > 0 || x.own && x.inflight > 0 }
