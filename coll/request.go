package coll

import (
	"context"
	"errors"
	"sync"

	"github.com/seed33544411/rma"
)

// Request is an operation in flight. Its methods may be called from any goroutine, but
// only one goroutine at a time may wait.
type Request struct {
	refusal error // why the operation was not started

	mu      sync.Mutex // taken behind that of the operation
	t       *team
	kind    kind
	o       *operation // nil: it is over, and has been given back to the team
	waiters int        // goroutines that use the operation's event
	ended   bool
	err     error
	then    []func(error)
}

// complete is the request of operations that were complete when their call had started them.
var complete = Request{ended: true}

// refused returns the request of an operation that was not started.
func refused(err error) *Request { return &Request{refusal: err, ended: true, err: err} }

// renew makes r the request of a use of o.
func (r *Request) renew(o *operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.t, r.kind, r.o, r.ended, r.err = o.t, o.kind, o, false, nil
}

// end ends the operation. It returns the calls of Then to make. If the operation is to be
// let go, which a persistent one is not, free says that the caller has to give it back to
// the team: otherwise the last waiter does.
func (r *Request) end(letGo bool, err error) (then []func(error), free bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended, r.err = true, err
	then, r.then = r.then, nil
	if letGo && r.waiters == 0 {
		r.o, free = nil, true
	}
	return then, free
}

// Wait returns nil when the operation is complete on this rank: the results are there, and
// the operation's memory may be used again. It returns the reason if the operation failed; the
// memory may be used again unless that contains an *InUseError.
// If ctx ends first, it returns the error of ctx, and the operation continues: see Cancel.
func (r *Request) Wait(ctx context.Context) error { return r.waitFor(ctx, true) }

// waitFor is Wait. spins says that it begins as that of a blocking call, which has done so already.
func (r *Request) waitFor(ctx context.Context, spins bool) error {
	r.mu.Lock()
	if r.ended {
		defer r.mu.Unlock()
		return r.err
	}
	o := r.o
	r.waiters++
	r.mu.Unlock()
	if spins {
		o.spin()
	}
	err := o.over.Wait(ctx)
	r.mu.Lock()
	r.waiters--
	free := false
	if r.ended {
		if err = r.err; r.waiters == 0 && o.prepared == nil {
			r.o, free = nil, true
		}
	}
	r.mu.Unlock()
	if free {
		o.t.reuse(o)
	}
	return err
}

// Done reports whether Wait would return at once.
func (r *Request) Done() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}

// Then calls f once with the operation's error when the operation is complete: on the
// goroutine that then drives the engine or, if the operation is complete already, on this
// one before Then returns. f must not wait for anything; it may start operations. Its panic ends the
// process, unless the operation is complete already.
func (r *Request) Then(f func(error)) {
	r.mu.Lock()
	if !r.ended {
		r.then = append(r.then, f)
		r.mu.Unlock()
		return
	}
	err := r.err
	r.mu.Unlock()
	f(err)
}

// Cancel gives an operation that is not complete up for all ranks: the team is revoked,
// and its operations fail on each rank with a *rma.PeerError that names this rank and
// wraps rma.ErrGivenUp. Cancel does not wait: the operation's memory may be used again
// when Wait has returned its error, except for an *InUseError.
func (r *Request) Cancel() {
	r.mu.Lock()
	t, k, ended := r.t, r.kind, r.ended
	r.mu.Unlock()
	if !ended {
		t.revoke(&rma.PeerError{Rank: t.eng.Rank(), Op: k.String(), Err: rma.ErrGivenUp})
	}
}

// wait is the blocking form of an operation: it ends with the operation. Nobody else has the
// request.
func (r *Request) wait(ctx context.Context) error {
	if r.refusal != nil || r == &complete {
		return r.refusal
	}
	err := r.waited(r.waitFor(ctx, false))
	r.t.reuseRequest(r)
	return err
}

// waited returns the result of a blocking call whose wait has returned err. If that has ended before the
// operation, it cancels the operation, which may complete meanwhile.
func (r *Request) waited(err error) error {
	r.mu.Lock()
	ended, result := r.ended, r.err
	r.mu.Unlock()
	if ended {
		return result
	}
	r.Cancel()
	over := make(chan error, 1)
	r.Then(func(err error) { over <- err })
	if result = <-over; result != nil {
		result = errors.Join(err, result)
	}
	return result
}
