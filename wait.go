package rma

import (
	"context"
	"errors"
	"fmt"
	"runtime/trace"

	"github.com/seed33544411/rma/internal/progress"
)

// WaitAll waits until all requests are complete and returns nil, or the errors of
// those that failed, joined. If ctx ends first it returns that error and leaves all
// of them as they were: they may be waited for again. Else they are used up. Zero
// requests, and ones that are used up already, are passed over. It does
// not allocate.
// Hot path.
func WaitAll(ctx context.Context, reqs ...Request) error {
	if trace.IsEnabled() {
		defer trace.StartRegion(ctx, regionWait+"all").End() //hot:allow while tracing only
	}
	for i := range reqs {
		if r := &reqs[i]; r.waitable() {
			if err := r.eng.prog.Wait(ctx, &r.op.Waiter); err != nil {
				return waitError(err)
			}
		}
	}
	var all error
	for i := range reqs {
		r := &reqs[i]
		if r.err == nil && !r.waitable() && !r.redeemable() {
			continue
		}
		_, err := r.wait(ctx, nil)
		all = joined(all, err)
	}
	return all
}

// WaitAny waits until one of the requests is complete and returns its index; call
// its Wait for the result, which returns at once, and put Request{} in its place
// before the next WaitAny. Zero requests, and ones that are used up, are passed over:
// if there are no others the error is ErrRequestUsed. Else it is the context's, or
// ErrClosed; the index is -1 then. It does not allocate for up to 16.
// Hot path.
func WaitAny(ctx context.Context, reqs ...Request) (int, error) {
	var room [16]*progress.Waiter
	ws := progress.Waiters(room[:0])
	if len(reqs) > len(room) {
		ws = make(progress.Waiters, 0, len(reqs)) //hot:allow more than 16 requests
	}
	var eng *Engine
	for i := range reqs {
		r := &reqs[i]
		switch {
		case r.refused(), r.redeemable(), r.waitable() && r.op.Done():
			return i, nil // Wait says how it ended
		case !r.waitable():
			ws = append(ws, nil)
		default:
			ws = append(ws, &r.op.Waiter)
			eng = r.eng
		}
	}
	if eng == nil {
		return -1, ErrRequestUsed
	}
	if trace.IsEnabled() {
		defer trace.StartRegion(ctx, regionWait+"any").End() //hot:allow while tracing only
	}
	i, err := eng.prog.WaitAny(ctx, 0, ws)
	if err != nil {
		return -1, waitError(err)
	}
	return i, nil
}

// Then has f called with the operation's error, once, when it is complete: by
// whatever goroutine drives the engine then, or by this one before Then returns if
// it is complete already. f must not block or wait for anything of the engine; it
// may begin operations. The request is used up.
func (r Request) Then(f func(error)) {
	if r.err != nil || !r.waitable() {
		switch {
		case r.err != nil:
		case r.redeem():
			if f != nil {
				f(nil)
			}
			return
		default:
			r.err = ErrRequestUsed
		}
		if f != nil {
			f(r.err)
		} else {
			r.eng.blame(r.err)
		}
		return
	}
	r.op.Then(f)
}

// Forget gives the request up: the operation goes on, nobody waits for it, and if
// it fails the next Flush of its peer says so. The request is used up. Forget does
// not allocate.
// Hot path.
func (r Request) Forget() { r.Then(nil) }

// blame keeps the error of an operation of any peer.
func (e *Engine) blame(err error) {
	if pe := (*PeerError)(nil); errors.As(err, &pe) && uint(pe.Rank) < uint(len(e.peers)) {
		e.peers[pe.Rank].one.Blame(err)
	}
}

// waitable reports whether there is an operation that the request means.
func (r *Request) waitable() bool { return r.op != nil && r.op.Gen() == r.gen }

// refused reports whether the operation was never begun.
func (r *Request) refused() bool { return r.err != nil }

// waitError is the error of a wait that did not come to its end.
func waitError(err error) error {
	switch {
	case errors.Is(err, progress.ErrClosed):
		return ErrClosed
	case errors.Is(err, progress.ErrWaited):
		return ErrRequestUsed
	}
	return fmt.Errorf("rma: wait: %w", err)
}
