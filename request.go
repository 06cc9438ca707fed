package rma

import (
	"context"
	"runtime/trace"
)

// Request is an operation under way. It is a value; one Wait that returns
// anything but the context's error uses it up.
type Request struct {
	eng  *Engine
	op   *op    // nil: the operation was complete, or refused, at once
	gen  uint32 // which use of op; without op the lower half of the ticket
	high uint32 // upper half of the ticket
	err  error  // the operation was refused at once
}

// Wait returns nil when the operation is complete (see the package comment), a
// *PeerError when it failed, the context's error when that ended first: the
// operation goes on then, and may be waited for again.
func (r Request) Wait(ctx context.Context) error {
	_, err := r.wait(ctx, nil)
	return err
}

// Done reports whether Wait would return at once.
func (r Request) Done() bool {
	return r.op == nil || r.op.gen.Load() != r.gen || r.op.Done()
}

func (r Request) wait(ctx context.Context, m *Envelope) (uint64, error) {
	switch {
	case r.err != nil:
		return 0, r.err
	case r.op == nil:
		if !r.redeem() {
			return 0, ErrRequestUsed
		}
		return 0, nil
	case r.op.gen.Load() != r.gen:
		return 0, ErrRequestUsed
	}
	var region *trace.Region
	if trace.IsEnabled() {
		region = r.trace(ctx)
	}
	var err error
	if r.op.kind == kindRecv && r.op.peer.shows {
		err = r.eng.prog.WaitLooking(ctx, &r.op.Waiter, r.op)
	} else {
		err = r.eng.prog.Wait(ctx, &r.op.Waiter)
	}
	if region != nil {
		region.End()
	}
	if err != nil {
		return 0, waitError(err)
	}
	if !r.op.gen.CompareAndSwap(r.gen, r.gen+1) {
		return 0, ErrRequestUsed // by another goroutine, meanwhile
	}
	v, err := r.op.value, r.op.err
	if m != nil {
		*m = Envelope{From: r.op.from, Tag: r.op.tag, Len: int(v)}
	}
	r.op.reuse()
	return v, err
}

// AtomicRequest is an atomic operation under way, or a wait for a signal. Its
// Request is for WaitAny and the like.
type AtomicRequest struct {
	Request
	held uint64 // by the word, if the operation was complete at once
}

// Wait returns what the target's word held before the operation; of a wait for a
// signal, what the word holds. Errors as Request.Wait.
func (a AtomicRequest) Wait(ctx context.Context) (uint64, error) {
	v, err := a.wait(ctx, nil)
	return v + a.held, err // one of them is 0
}
