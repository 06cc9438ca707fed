package initiator

import (
	"slices"
	"time"
)

// add begins to wait for a word.
func (w *awaits) add(o *Op) {
	a := await{mem: o.more.await.mem, of: o.more.await.of, o: o}
	if !w.meets(&a) {
		w.list = append(w.list, a)
	}
}

// meets ends a if its word meets the condition or never will, and reports whether it did.
func (w *awaits) meets(a *await) bool {
	o, x := a.o, a.o.more
	v := a.of.Load(a.mem)
	switch from := x.await.from; {
	case a.of.Meets(v, x.await.cond, o.operand):
		o.Value = v
	case w.over != nil:
		o.Err = w.over
	case from != nil && from.down != nil:
		o.Err = from.host.Error(Await.String(), from.down)
	default:
		a.seen = v
		return false
	}
	_ = x.await.reg.Release() // if the region was closed meanwhile, Close reports failures
	if o.Err != nil {
		o.q.counts.Failed++
	}
	o.Finish()
	return true
}

// look checks all waits, also those whose peer is lost. It reports whether any ended.
func (w *awaits) look() bool {
	w.all = false
	kept := w.list[:0]
	for i := range w.list {
		if a := &w.list[i]; !w.meets(a) {
			kept = append(kept, *a)
		}
	}
	if len(kept) == len(w.list) {
		return false
	}
	clear(w.list[len(kept):])
	w.list = kept
	w.backoff.Reset()
	return true
}

// awaitTurn is the number of words that a step checks in turn, besides as many of the latest
// waits. Each costs some ns, at every poll of all goroutines.
const awaitTurn = 8

// step checks words for one step of the engine: if there are many, the latest and some of the
// others.
// Hot path.
func (w *awaits) step() bool {
	if w.all {
		return w.look()
	}
	var ended int
	if n := len(w.list); n <= 2*awaitTurn {
		ended = w.sweep(0, n)
	} else {
		if w.next >= n-awaitTurn {
			w.next = 0
		}
		ended = w.sweep(w.next, w.next+awaitTurn) // first: the latest may leave a list too short for it
		w.next += awaitTurn - ended
		n -= ended
		ended += w.sweep(n-awaitTurn, n)
	}
	if ended == 0 {
		return false
	}
	w.backoff.Reset()
	return true
}

// sweep checks words that have changed, and returns how many waits ended. Waits whose peer is
// lost were ended by look at once.
// Hot path.
func (w *awaits) sweep(lo, hi int) (ended int) {
	for i := hi - 1; i >= lo; i-- {
		if a := &w.list[i]; a.of.Load(a.mem) != a.seen && w.meets(a) {
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
		if i := slices.IndexFunc(w.list, func(a await) bool { return a.o == o }); i >= 0 {
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
	for i := range w.list {
		if from := w.list[i].o.more.await.from; (from == nil || from.own) && (d == 0 || d > ownNap) {
			return ownNap
		}
	}
	return d
}

// Awaited yields the ranks of the peers whose signals are awaited.
func (e *Engine) Awaited(yield func(rank int) bool) {
	e.prog.AssertOwned()
	for i := range e.awaits.list {
		if from := e.awaits.list[i].o.more.await.from; from != nil && !yield(from.rank) {
			return
		}
	}
}
