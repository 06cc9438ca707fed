package pending

import (
	"errors"
	"sync/atomic"

	"github.com/seed33544411/rma/internal/progress"
)

// Work is an operation of a package that embeds Operation.
type Work interface {
	// Start starts the work, taken from the inbox. Owner's.
	Start()

	// Poll handles the awaited event if it has occurred, see progress.Poller. Owner's.
	Poll() bool

	// Blame records the error of work without a waiter.
	Blame(err error)

	// Describe returns the operation and the rank for errors and traces.
	Describe() (op string, rank int)

	// Recycle returns the work to its pool.
	Recycle()
}

// Operation is one piece of work, from the call to the end of its request. The calling
// goroutine sets it up; from Post on it belongs to the owner of the engine, until Finish;
// then to the goroutine that waits or, if there is none, to its pool.
type Operation struct {
	progress.Waiter
	gen    atomic.Uint32 // number of the present use, even; odd from Then to the end of that use
	polled bool          // a wait may end by Work.Poll
	next   *Operation    // in the inbox
	spent  *Budget       // the budget that counts it until it ends
	mem    Memory        // may be closed until the operation starts
	work   Work
	poll   progress.Poller // the same
	hook   func(error)     // called at the end of an operation without a waiter, or the next
	valued func(n int, err error)

	Value uint64 // result of an atomic; length of a message
	Err   error  // why it failed
}

// Bind sets the work that o is part of, once, before its first use.
func (o *Operation) Bind(w Work) { o.work, o.poll = w, w }

// Begin starts a new use of o. polled: Work.Poll may end a wait for it.
// Hot path.
func (o *Operation) Begin(polled bool) {
	o.Init()
	o.polled = polled
	o.Value = 0
}

// Memory is registered memory that the application may close.
type Memory interface {
	Live() bool // it has not been closed
}

// ErrForeign says that memory cannot be used.
var ErrForeign = errors.New("buffer belongs to another engine or its region is closed")

// Needs sets the memory that o uses.
// Hot path.
func (o *Operation) Needs(m Memory) { o.mem = m }

// Stale reports whether memory that o uses has been closed since the call: o must not start.
// Only the owner closes memory that operations may use, and finds those that have started.
// Owner's.
// Hot path.
func (o *Operation) Stale() bool { return o.mem != nil && !o.mem.Live() }

// Work returns the work that o is part of.
func (o *Operation) Work() Work { return o.work }

// Gen returns the number of the present use.
func (o *Operation) Gen() uint32 { return o.gen.Load() }

// InFlight reports whether use gen has not ended, also if Then has used its requests up. Any
// goroutine may call it.
func (o *Operation) InFlight(gen uint32) bool {
	now := o.Gen()
	return now == gen && !o.Done() || now == gen+1
}

// Poller returns the Poller for a wait for o, or nil.
func (o *Operation) Poller() progress.Poller {
	if !o.polled {
		return nil
	}
	return o.poll
}

// Describe calls Work.Describe.
func (o *Operation) Describe() (op string, rank int) { return o.work.Describe() }

// Claim uses up the requests of use gen; the caller may then read the result, before
// Release. It returns false if another goroutine has claimed it.
func (o *Operation) Claim(gen uint32) bool { return o.gen.CompareAndSwap(gen, gen+2) }

// Release returns an operation whose requests are used up to its pool.
// Hot path.
func (o *Operation) Release() {
	// These are usually nil, and are read before they are written: a write would involve
	// the garbage collector.
	if o.Err != nil {
		o.Err = nil
	}
	if o.mem != nil {
		o.mem = nil
	}
	if o.hook != nil {
		o.hook = nil
	}
	if o.valued != nil {
		o.valued = nil
	}
	o.work.Recycle()
}

// Drop ends this use of o: its requests are used up, and it returns to its pool.
func (o *Operation) Drop() {
	o.gen.Add(2 - o.gen.Load()&1)
	o.Release()
}

// Spend counts o in b until it ends; it returns false if b is used up, and o must not be
// posted.
// Hot path.
func (o *Operation) Spend(b *Budget) bool {
	if b.most == 0 {
		return true
	}
	if !b.take() {
		return false
	}
	o.spent = b
	return true
}

// Finish ends o and wakes the goroutine that waits. An operation without a waiter returns
// to its pool, and its callback is called. Owner's; once in each use.
func (o *Operation) Finish() {
	if b := o.spent; b != nil {
		o.spent = nil
		b.give()
	}
	if o.Waiter.Finish() {
		o.end()
	}
}

// end is settle in the owner of the engine, which may be a goroutine that posts, and might recover the panic of
// the callback.
func (o *Operation) end() {
	defer progress.Crash()
	o.settle()
}

// Then releases o, whose requests are used up: f is called with its error when it ends, or
// now if it has ended. If f is nil, Work.Blame records the error.
func (o *Operation) Then(f func(error)) {
	o.hook = f
	o.after()
}

// ThenLen is Then with the length of the message, for an f that is not nil.
func (o *Operation) ThenLen(f func(n int, err error)) {
	o.valued = f
	o.after()
}

// after uses the requests of o up. Its callback is set.
func (o *Operation) after() {
	o.gen.Add(1)
	if !o.Detach() {
		o.settle()
	}
}

// settle returns an operation to its pool that has ended and has no waiter.
func (o *Operation) settle() {
	hook, valued, value, err := o.hook, o.valued, o.Value, o.Err
	if hook == nil && valued == nil && err != nil {
		o.work.Blame(err)
	}
	o.Drop()
	switch {
	case hook != nil:
		hook(err)
	case valued != nil:
		valued(int(value), err)
	}
}

// Inbox holds operations that applications have posted and cannot start themselves: a stack
// that the owner of the engine empties at once. A single inbox for all operations of an
// engine preserves the order of posting. The zero value is ready.
type Inbox struct{ top atomic.Pointer[Operation] }

// Push posts o. Any goroutine may call it.
// Hot path.
func (in *Inbox) Push(o *Operation) {
	for {
		o.next = in.top.Load()
		if in.top.CompareAndSwap(o.next, o) {
			return
		}
	}
}

// Pending reports whether the inbox has operations. Any goroutine may call it.
func (in *Inbox) Pending() bool { return in.top.Load() != nil }

// TakeOver starts the operations of the inbox, in the order of posting. It reports whether
// there were any. Owner's.
// Hot path.
func (in *Inbox) TakeOver() bool {
	if !in.Pending() {
		return false
	}
	var first *Operation
	for o := in.top.Swap(nil); o != nil; {
		next := o.next
		o.next = first
		first, o = o, next
	}
	for o := first; o != nil; {
		next := o.next
		o.next = nil
		o.work.Start()
		o = next
	}
	return true
}

// receipts is the number of used receipts that are remembered. A receipt that is used
// twice, with so many others used in between, counts as unused, which is harmless.
const receipts = 1024

// Receipts numbers operations that were complete when the call returned: they have no
// Operation, but their requests are used up once as well. The zero value is ready.
type Receipts struct {
	last uint64
	used [receipts]atomic.Uint64 // the last used ones
}

// Issue returns the next receipt; 0 is none. Owner's.
// Hot path.
func (r *Receipts) Issue() uint64 {
	r.last++
	return r.last
}

// Redeem uses n up. It returns false if n was used up already, or is 0. Any goroutine may
// call it.
func (r *Receipts) Redeem(n uint64) bool { return n != 0 && r.used[n%receipts].Swap(n) != n }

// Redeemable reports whether Redeem would return true.
func (r *Receipts) Redeemable(n uint64) bool { return n != 0 && r.used[n%receipts].Load() != n }

// Budget bounds the operations that are posted and not complete, of one peer and, in
// portions, of all. Any goroutine may call its methods. The zero value has no bounds.
type Budget struct {
	n    atomic.Int64
	most int64
	all  *atomic.Int64 // of all peers, in portions
	sum  int64         // bound of all
}

// portion is the number of operations that a peer takes from the budget of all at a time,
// so that the shared word is written once per portion.
const portion = 1024

// Bound sets the bounds: of this peer, and of the sum in all. Call it once, before the
// first use.
func (b *Budget) Bound(most int, all *atomic.Int64, sum int) {
	b.most, b.all, b.sum = int64(most), all, int64(sum)
}

// Outstanding returns the number of operations posted and not complete; 0 without bounds.
func (b *Budget) Outstanding() int { return int(b.n.Load()) }

// take counts an operation; it returns false, and counts nothing, if the bound is reached.
// Hot path.
func (b *Budget) take() bool {
	n := b.n.Add(1)
	ok := n <= b.most
	if n%portion == 0 {
		ok = b.all.Add(portion) <= b.sum && ok
	}
	if !ok {
		b.give()
	}
	return ok
}

// give undoes take. Every portion that take counted is returned once, however calls
// interleave: the count passes each multiple of a portion upwards as often as downwards,
// except multiples that it stays above.
// Hot path.
func (b *Budget) give() {
	if (b.n.Add(-1)+1)%portion == 0 {
		b.all.Add(-portion)
	}
}
