package rma

import (
	"context"
	"runtime/trace"

	"github.com/seed33544411/rma/internal/message/hub"
	"github.com/seed33544411/rma/internal/pending"
)

// Request is an operation under way. It is a value; one Wait that returns
// anything but the context's error uses it up.
type Request struct {
	eng  *Engine
	op   *pending.Operation // nil: the operation was complete, or refused, at once
	gen  uint32             // which use of op; without op the lower half of the receipt
	high uint32             // upper half of the receipt
	err  error              // the operation was refused at once
}

// request is the request of an operation that has been begun.
func (e *Engine) request(o *pending.Operation) Request { return Request{eng: e, op: o, gen: o.Gen()} }

// receipt is the request of an operation that is complete, of which n is the receipt.
func (e *Engine) receipt(n uint64) Request {
	return Request{eng: e, gen: uint32(n), high: uint32(n >> 32)}
}

// number is the receipt of an operation that was complete when the call returned, 0 if it
// was not.
func (r *Request) number() uint64 {
	if r.op != nil {
		return 0
	}
	return uint64(r.high)<<32 | uint64(r.gen)
}

// redeem uses up the request of an operation that was complete at once; false if it was
// used up already, or means nothing.
func (r *Request) redeem() bool {
	n := r.number()
	return n != 0 && r.eng.proto.receipts.Redeem(n)
}

// redeemable reports whether redeem would return true.
func (r *Request) redeemable() bool {
	n := r.number()
	return n != 0 && r.eng.proto.receipts.Redeemable(n)
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
	return r.op == nil || r.op.Gen() != r.gen || r.op.Done()
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
	case r.op.Gen() != r.gen:
		return 0, ErrRequestUsed
	}
	var region *trace.Region
	if trace.IsEnabled() {
		region = r.trace(ctx)
	}
	err := r.eng.prog.WaitLooking(ctx, &r.op.Waiter, r.op.Looker())
	if region != nil {
		region.End()
	}
	if err != nil {
		return 0, waitError(err)
	}
	if !r.op.Claim(r.gen) {
		return 0, ErrRequestUsed // by another goroutine, meanwhile
	}
	v, err := r.op.Value, r.op.Err
	if m != nil {
		o := r.op.Work().(*hub.Op)
		*m = Envelope{From: o.From, Tag: o.Tag, Len: int(v)}
	}
	r.op.Release()
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
