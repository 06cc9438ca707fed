package pending

import (
	"sync/atomic"

	"github.com/seed33544411/rma/internal/progress"
)

// Work is what an Operation is the common part of.
type Work interface {
	// Start begins the work, which comes from the inbox. Owner's.
	Start()

	// Look takes what is there of what a wait is for, see progress.Looker. Owner's.
	Look() bool

	// Blame keeps the error of work that nobody waits for.
	Blame(err error)

	// Describe names the operation and the rank that errors and traces tell.
	Describe() (op string, rank int)

	// Recycle gives the work back to its pool.
	Recycle()
}

// Operation is one piece of work, from the call to the end of its request. The calling
// goroutine fills it; from Post on it belongs to the owner of the engine, until Finish;
// then to the goroutine that waits, or, if none does, it goes back at once.
type Operation struct {
	progress.Waiter
	gen   atomic.Uint32 // which use a request means
	looks bool          // a wait may end by Work.Look
	next  *Operation    // in the inbox
	spent *Budget       // that it counts in, until it ends
	work  Work
	look  progress.Looker // the same
	hook  func(error)     // called at the end of an operation that was given up

	Value uint64 // what an atomic found; the length of a message
	Err   error  // why it failed
}

// Bind says what o is part of. Once, before its first use.
func (o *Operation) Bind(w Work) { o.work, o.look = w, w }

// Begin starts a new use of o. looks: a wait for it may end by Work.Look.
// Hot path.
func (o *Operation) Begin(looks bool) {
	o.Init()
	o.looks = looks
	o.Value = 0
}

// Work is what o is part of.
func (o *Operation) Work() Work { return o.work }

// Gen is the number of the present use.
func (o *Operation) Gen() uint32 { return o.gen.Load() }

// Looker is what a wait for o looks at, or nil.
func (o *Operation) Looker() progress.Looker {
	if !o.looks {
		return nil
	}
	return o.look
}

// Describe is Work.Describe.
func (o *Operation) Describe() (op string, rank int) { return o.work.Describe() }

// Claim uses up the requests of use gen, whose result is the caller's to take, before
// Release. False: another goroutine has claimed it.
func (o *Operation) Claim(gen uint32) bool { return o.gen.CompareAndSwap(gen, gen+1) }

// Release gives back an operation whose requests are used up.
// Hot path.
func (o *Operation) Release() {
	// These are nil mostly, and are read before they are written: the write would tell
	// the collector.
	if o.Err != nil {
		o.Err = nil
	}
	if o.hook != nil {
		o.hook = nil
	}
	o.work.Recycle()
}

// Drop ends this use of o: its requests are used up, and it is given back.
func (o *Operation) Drop() {
	o.gen.Add(1)
	o.Release()
}

// Spend counts o in b until it ends; false: b is used up, and o is not to be posted.
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

// Finish ends o: the goroutine that waits is woken. An operation that nobody waits for is
// given back, and its callback called. Owner's; once in each use.
func (o *Operation) Finish() {
	if b := o.spent; b != nil {
		o.spent = nil
		b.give()
	}
	if o.Waiter.Finish() {
		o.settle()
	}
}

// Then gives o up, whose requests are used up: f is called with its error when it ends,
// or now if it has. If f is nil the error is kept with Work.Blame.
func (o *Operation) Then(f func(error)) {
	o.hook = f
	o.gen.Add(1)
	if !o.Detach() {
		o.settle()
	}
}

// settle gives back an operation that has ended and that nobody waits for.
func (o *Operation) settle() {
	hook, err := o.hook, o.Err
	if hook == nil && err != nil {
		o.work.Blame(err)
	}
	o.Drop()
	if hook != nil {
		hook(err)
	}
}
