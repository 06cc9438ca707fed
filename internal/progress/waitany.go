package progress

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/seed33544411/rma/internal/bubble"
)

// Waiters are the ends of several pieces of work, for WaitAny. Nil entries are skipped.
type Waiters []*Waiter

// done returns the index of the first that is done, cyclically from start on; -1 if none
// is.
func (ws Waiters) done(start int) int {
	for i := range ws {
		j := start + i
		if j >= len(ws) {
			j -= len(ws)
		}
		if ws[j] != nil && ws[j].Done() {
			return j
		}
	}
	return -1
}

// bells are the channels that wake goroutines parked on several waiters.
var bells = sync.Pool{New: func() any { return new(bell) }}

type bell struct {
	ch   chan struct{}
	kept []chan struct{}
}

// WaitAny returns the index of one of ws that is done, the first from start on, or -1 and
// the error of ctx, or ErrClosed. Meanwhile it drives the links if no other goroutine does.
// No other goroutine may wait for any of them. It does not allocate if one is done soon.
// Hot path.
func (e *Engine) WaitAny(ctx context.Context, start int, ws Waiters) (int, error) {
	if i := ws.done(start); i >= 0 {
		return i, nil
	}
	a := aim{any: ws, start: start}
	e.await(ctx, &a, nil)
	if i := ws.done(start); i >= 0 {
		return i, nil
	}
	defer Crash() //hot:allow once for several operations
	return e.parkAny(ctx, start, ws)
}

// parkAny waits while other goroutines drive. All parked waiters use the same bell; they
// get their own back before it returns.
func (e *Engine) parkAny(ctx context.Context, start int, ws Waiters) (int, error) {
	if bubble.Inside() {
		e.beginPark()
		defer e.parked.Add(-1)
		err := e.parkInside(ctx, func() bool { return ws.done(start) >= 0 })
		return ws.done(start), err
	}
	b := bells.Get().(*bell)
	defer bells.Put(b)
	if cap(b.ch) < len(ws) {
		b.ch = make(chan struct{}, len(ws))
	}
	b.kept = b.kept[:0]
	e.beginPark()
	defer e.parked.Add(-1)
	found := false
	for _, w := range ws {
		if w == nil {
			b.kept = append(b.kept, nil)
			continue
		}
		state := atomic.LoadUint32(&w.state)
		if state == waitDone {
			found = true
			break
		}
		if state == waitParked || state == waitParking { // by this call, if it is in ws twice; its finisher may be reading ch
			b.kept = append(b.kept, nil)
			continue
		}
		if w.ch == nil {
			w.ch = make(chan struct{}, 1)
		}
		b.kept = append(b.kept, w.ch)
		w.ch = b.ch
		if !atomic.CompareAndSwapUint32(&w.state, waitPending, waitParked) {
			w.ch = b.kept[len(b.kept)-1] // it has ended and uses no bell any longer
			b.kept[len(b.kept)-1] = nil
			found = true
			break
		}
	}
	var err error
	rung := 0
	if !found {
		if e.owner.Load() != ownerApp {
			e.rouse()
		}
		select {
		case <-b.ch:
			rung++
		case <-ctx.Done():
			err = ctx.Err()
		case <-e.quit:
			err = ErrClosed
		}
	}
	// Waiters that are still parked become pending again. Each of the others rings, or has
	// rung, once, and reads its bell for that: it gets its own back only afterwards.
	for i, own := range b.kept {
		if own == nil {
			continue
		}
		if atomic.CompareAndSwapUint32(&ws[i].state, waitParked, waitPending) {
			ws[i].ch, b.kept[i] = own, nil
		} else {
			rung--
		}
	}
	for ; rung < 0; rung++ {
		<-b.ch
	}
	for i, own := range b.kept {
		if own != nil {
			ws[i].ch = own
		}
	}
	clear(b.kept)
	if i := ws.done(start); i >= 0 {
		return i, nil
	}
	return -1, err
}
