package pending

import "sync/atomic"

// Inbox is where applications post operations that they cannot start themselves: a stack
// that the owner of the engine takes as a whole. One inbox for all operations of an engine
// keeps the order in which they were posted. The zero value is ready.
type Inbox struct{ top atomic.Pointer[Operation] }

// Push posts o. From any goroutine.
// Hot path.
func (in *Inbox) Push(o *Operation) {
	for {
		o.next = in.top.Load()
		if in.top.CompareAndSwap(o.next, o) {
			return
		}
	}
}

// Pending reports whether there is anything. From any goroutine.
func (in *Inbox) Pending() bool { return in.top.Load() != nil }

// TakeOver starts what was posted, in the order of posting. It reports whether there was
// anything. Owner's.
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
