package initiator

import (
	"slices"
	"time"
)

// add begins to wait for a word.
func (w *awaits) add(o *Op) {
	if !w.meets(o) {
		w.list = append(w.list, o)
	}
}

// meets ends o if its word meets the condition or never will, and reports whether it did.
func (w *awaits) meets(o *Op) bool {
	x := o.more
	v := x.await.of.Load(x.await.mem)
	switch from := x.await.from; {
	case x.await.of.Meets(v, x.await.cond, o.operand):
		o.Value = v
	case w.over != nil:
		o.Err = w.over
	case from != nil && from.down != nil:
		o.Err = from.host.Error(Await.String(), from.down)
	default:
		return false
	}
	_ = x.await.reg.Release() // if the region was closed meanwhile, Close reports failures
	if o.Err != nil {
		o.q.counts.Failed++
	}
	o.Finish()
	return true
}

// look checks all awaited words. It reports whether any wait ended.
func (w *awaits) look() bool {
	n := len(w.list)
	w.list = slices.DeleteFunc(w.list, w.meets)
	if len(w.list) == n {
		return false
	}
	w.backoff.Reset()
	return true
}

// awaitTurn is the number of words that a step checks in turn, besides as many of the latest
// waits. Each costs some ns, at every poll of all goroutines.
const awaitTurn = 8

// step is look for one step of the engine: if there are many words, it checks the latest and
// some of the others.
// Hot path.
func (w *awaits) step() bool {
	n := len(w.list)
	if w.all || n <= 2*awaitTurn {
		w.all = false
		return w.look()
	}
	if w.next >= n-awaitTurn {
		w.next = 0
	}
	latest := w.sweep(n-awaitTurn, n)
	ended := w.sweep(w.next, w.next+awaitTurn)
	w.next += awaitTurn - ended
	if latest+ended == 0 {
		return false
	}
	w.backoff.Reset()
	return true
}

// sweep checks some words, and returns how many waits ended.
// Hot path.
func (w *awaits) sweep(lo, hi int) (ended int) {
	for i := hi - 1; i >= lo; i-- {
		if w.meets(w.list[i]) {
			w.list = slices.Delete(w.list, i, i+1)
			ended++
		}
	}
	return ended
}

// CancelAwait ends an Await that has no waiter. Any goroutine may call it.
func (e *Engine) CancelAwait(o *Op) {
	e.prog.Do(func() {
		e.opt.Inbox.TakeOver()
		w := &e.awaits
		if i := slices.Index(w.list, o); i >= 0 {
			w.list = slices.Delete(w.list, i, i+1)
			_ = o.more.await.reg.Release()
		}
		o.Drop()
	})
}

// ownNap bounds a sleep while an operation waits for a word that this rank may change with
// plain stores, which cause no event. It is short for the waiter, and 250 checks per second
// cost little.
const ownNap = 4 * time.Millisecond

// rest returns how long a sleep may last while words are awaited, 0 if without limit.
func (w *awaits) rest() (d time.Duration) {
	w.all = true // the step before the sleep
	if w.deaf {
		d = w.backoff.Next()
	}
	for _, o := range w.list {
		if from := o.more.await.from; (from == nil || from.own) && (d == 0 || d > ownNap) {
			return ownNap
		}
	}
	return d
}

// Awaited yields the ranks of the peers whose signals are awaited.
func (e *Engine) Awaited(yield func(rank int) bool) {
	e.prog.AssertOwned()
	for _, o := range e.awaits.list {
		if from := o.more.await.from; from != nil && !yield(from.rank) {
			return
		}
	}
}
