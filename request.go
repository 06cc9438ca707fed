package rma

import (
	"context"
	"errors"
	"fmt"
	"runtime/trace"

	"github.com/seed33544411/rma/internal/initiator"
	"github.com/seed33544411/rma/internal/message/hub"
	"github.com/seed33544411/rma/internal/pending"
	"github.com/seed33544411/rma/internal/progress"
)

// Request is an operation in flight. It is a value, and its copies refer to the same
// operation. A Wait that returns the operation's result uses it up: later waits return
// ErrRequestUsed. A Wait that ends with its context does not. There are two exceptions. An
// operation that was refused at the call has nothing to use up: each Wait returns its error.
// Of operations that were complete when the call returned, the engine remembers about a
// thousand: a request that has been used up may report completion again after as many others.
//
// It has no more fields and words than the compiler keeps in registers, see
// TestRequestFitsRegisters.
type Request struct {
	eng *Engine
	op  *pending.Operation // nil: the operation was complete at once
	num uint64             // generation of op; without op the receipt; or refusal
}

// refusal is Request.num of an operation that was refused at once. Request.op holds only the
// error, a *PeerError, and has never been begun: its generation is another one.
const refusal = 1<<63 | 1

// Envelope describes a message.
type Envelope struct {
	From int    // rank of the sender
	Tag  uint32 // as sent
	Len  int    // bytes
}

// newRequest returns the request of an operation that has been begun.
func newRequest(e *Engine, o *pending.Operation) Request {
	return Request{eng: e, op: o, num: uint64(o.Gen())}
}

// newReceipt returns the request of an operation that is complete and has the receipt n.
func newReceipt(e *Engine, n uint64) Request { return Request{eng: e, num: n} }

// newRefusal returns the request of an operation that was refused because of err.
func newRefusal(e *Engine, err *PeerError) Request {
	return Request{eng: e, op: &pending.Operation{Err: err}, num: refusal}
}

// gen returns the generation of op.
func (r Request) gen() uint32 { return uint32(r.num) }

// number returns the receipt of an operation that was complete when the call returned, 0
// for other operations.
func (r Request) number() uint64 {
	if r.op != nil {
		return 0
	}
	return r.num
}

// redeem uses up the request of an operation that was complete at once. It returns false if
// the request was used up already, or is invalid.
func (r Request) redeem() bool {
	n := r.number()
	return n != 0 && r.eng.proto.receipts.Redeem(n)
}

// redeemable reports whether redeem would return true.
func (r Request) redeemable() bool {
	n := r.number()
	return n != 0 && r.eng.proto.receipts.Redeemable(n)
}

// Wait returns nil when the operation is complete (see the package documentation), or a
// *PeerError when it has failed. If ctx ends first, Wait returns an error that wraps that
// of ctx; the operation continues, and may be waited for again.
func (r Request) Wait(ctx context.Context) error {
	_, err := r.wait(ctx, nil)
	return err
}

// Done reports whether Wait would return at once.
func (r Request) Done() bool {
	return r.op == nil || r.op.Gen() != r.gen() || r.op.Done()
}

// inFlight reports whether the operation has not ended, also if the request is used up.
func (r Request) inFlight() bool { return r.op != nil && r.op.InFlight(r.gen()) }

func (r Request) wait(ctx context.Context, m *Envelope) (uint64, error) {
	switch {
	case r.refused():
		return 0, r.op.Err
	case r.op == nil:
		if !r.redeem() {
			return 0, ErrRequestUsed
		}
		return 0, nil
	case r.op.Gen() != r.gen():
		return 0, ErrRequestUsed
	}
	var region *trace.Region
	if trace.IsEnabled() {
		region = r.trace(ctx)
	}
	err := r.eng.prog.WaitPolling(ctx, &r.op.Waiter, r.op.Poller())
	if region != nil {
		region.End()
	}
	if err != nil {
		return 0, waitError(err)
	}
	if !r.op.Claim(r.gen()) {
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

// AtomicRequest is an atomic operation in flight, or a wait for a signal. Its Request can
// be passed to WaitAny and similar functions.
type AtomicRequest struct {
	Request
	held uint64 // by the word, if the operation was complete at once
}

// Wait returns the previous value of the target's word or, for a wait for a signal, the
// value that met the condition. Errors are those of Request.Wait.
func (a AtomicRequest) Wait(ctx context.Context) (uint64, error) {
	v, err := a.wait(ctx, nil)
	return v + a.held, err // one of them is 0
}

// joined is errors.Join without the allocation if there is at most one error.
func joined(first, next error) error {
	if first == nil || next == nil {
		if next == nil {
			return first
		}
		return next
	}
	return errors.Join(first, next)
}

// WaitAll waits until all requests are complete. It returns nil, or the joined errors of
// those that failed, and uses the requests up. If ctx ends first, WaitAll returns an error
// that wraps that of ctx and uses up none of the requests: they may be waited for again.
// It skips zero requests and requests that are used up already. It does not allocate
// unless several requests fail.
// Hot path.
func WaitAll(ctx context.Context, reqs ...Request) error {
	if trace.IsEnabled() {
		defer trace.StartRegion(ctx, regionWait+"all").End() //hot:allow while tracing only
	}
	if err := waitEnds(ctx, reqs...); err != nil {
		return err
	}
	var all error
	for i := range reqs {
		r := &reqs[i]
		if !r.refused() && !r.waitable() && !r.redeemable() {
			continue
		}
		_, err := r.wait(ctx, nil)
		all = joined(all, err)
	}
	return all
}

// waitEnds waits until all requests are complete, and uses up none of them. The error is that of
// the wait.
// Hot path.
func waitEnds(ctx context.Context, reqs ...Request) error {
	for i := range reqs {
		if r := &reqs[i]; r.waitable() {
			if err := r.eng.prog.Wait(ctx, &r.op.Waiter); err != nil {
				return waitError(err)
			}
		}
	}
	return nil
}

// WaitAny waits until one of the requests is complete and returns its index. Then call
// that request's Wait, which returns the result at once, and put Request{} in its place
// before the next WaitAny: it skips zero requests. It also skips requests that are used up,
// with the exceptions named at Request, for which a loop needs the zero request. If there
// are no others the error is ErrRequestUsed. Otherwise the error is that of ctx, or
// ErrClosed. The index is -1 with an error. WaitAny does not allocate for up to 16
// requests.
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
			return i, nil // Wait returns its result
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

// Then calls f once with the operation's error, when the operation is complete: on the
// goroutine that then drives the engine, or, if the operation is complete already, on this
// one before Then returns. f is a callback: it must not panic, block or wait for the engine,
// as [Region.Close] does; see Concurrency in the package's comment. It may start operations.
// Then uses the request up.
func (r Request) Then(f func(error)) {
	var err error
	switch {
	case r.refused():
		err = r.op.Err
	case r.waitable():
		r.op.Then(f)
		return
	case !r.redeem():
		err = ErrRequestUsed
	}
	switch {
	case f != nil:
		f(err)
	case err != nil:
		blame(r.eng, err)
	}
}

// Forget gives the request up: the operation continues, and if it fails, the next Flush of
// its peer returns the error. Forget uses the request up. It does not allocate.
// Hot path.
func (r Request) Forget() { r.Then(nil) }

// blame records the error of an operation, for the next Flush.
func blame(e *Engine, err error) {
	if pe := (*PeerError)(nil); errors.As(err, &pe) && uint(pe.Rank) < uint(len(e.peers)) {
		e.peers[pe.Rank].one.Blame(err)
	}
}

// waitable reports whether the request refers to an operation.
func (r Request) waitable() bool { return r.op != nil && r.op.Gen() == r.gen() }

// refused reports whether the operation was refused at the call.
func (r Request) refused() bool { return r.num == refusal }

// waitError returns the error of a wait that did not complete.
func waitError(err error) error {
	switch {
	case errors.Is(err, progress.ErrClosed):
		return ErrClosed
	case errors.Is(err, progress.ErrWaited):
		return ErrRequestUsed
	}
	return fmt.Errorf("rma: wait: %w", err)
}

// trace begins the region of a wait, which names the peer. The request is valid. The peer
// of a receive may be known only at the end.
func (r Request) trace(ctx context.Context) *trace.Region {
	op, rank := r.op.Describe()
	switch {
	case op == initiator.Await.String():
		op = "signal"
	case rank != AnyRank:
		trace.Logf(ctx, "rma", "rank %d", rank)
	}
	return trace.StartRegion(ctx, regionWait+op)
}
