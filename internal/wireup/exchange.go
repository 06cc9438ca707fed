package wireup

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Exchange is one collective call: each rank contributes a value and gets those of all. The
// server decides the result, once, for all ranks: all get the values, or all get an error.
// For one goroutine at a time.
//
// A rank whose context ends has two options. Wait may be called again, and continues the
// same exchange, which may be complete for the others meanwhile. Finish gives the exchange
// up for all ranks.
type Exchange struct {
	j       *Job
	op, key string
	number  uint64       // among the exchanges of its name
	m       message      // this rank's contribution
	begun   time.Time    // when this rank joined it; zero before
	answer  chan message // receives the result
	gaveUp  error        // why this rank has given it up

	over bool // the result is known
	vals [][]byte
	err  error
}

// Exchange creates this rank's part in an exchange. The other ranks are not notified before
// Wait or Finish. The n-th under a name joins the n-th of the other ranks. A value is at
// most min(MaxValue, MaxGather/Size) bytes. op is for messages.
func (j *Job) Exchange(op, key string, val []byte) (*Exchange, error) {
	if err := checkSizes(op, key+"                      ", val, gatherMax(j.cfg.Size)); err != nil {
		return nil, err
	}
	name := op[:1] + "/" + key
	j.mu.Lock()
	round := j.rounds[name]
	j.rounds[name]++
	j.mu.Unlock()
	m := message{typ: msgGather, key: name + "/" + strconv.FormatUint(round, 36), val: val}
	return &Exchange{j: j, op: op, key: key, number: round, m: m}, nil
}

// Number returns the number of exchanges of its name that were created before it, which is
// the same on all ranks.
func (x *Exchange) Number() uint64 { return x.number }

// Over reports whether the result of x is known.
func (x *Exchange) Over() bool { return x.over }

// Wait returns the values of all ranks, by rank, when all have joined. If ctx ends before,
// it may be called again, and the error is a *TimeoutError or wraps the context's. Other
// errors are final: *PeerGoneError, *GivenUpError and those of the job's end.
func (x *Exchange) Wait(ctx context.Context) ([][]byte, error) {
	ctx, cancel := x.j.bound(ctx)
	defer cancel()
	if x.await(ctx) {
		return x.vals, x.err
	}
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) || x.begun.IsZero() {
		return nil, x.wrap(ctx.Err())
	}
	return nil, x.late()
}

// Finish is Wait, except that it gives the exchange up for all ranks if ctx ends before all
// have joined: the error is then a *GivenUpError, on this rank and on the others. If the
// server does not answer in time whether they had joined, the error wraps ErrUndecided;
// Finish may then be called again to find out.
func (x *Exchange) Finish(ctx context.Context) ([][]byte, error) {
	ctx, cancel := x.j.bound(ctx)
	defer cancel()
	if x.await(ctx) {
		return x.vals, x.err
	}
	if x.gaveUp == nil {
		x.gaveUp = ctx.Err()
		if x.begun.IsZero() {
			x.m.typ, x.m.val = msgGiveUp, nil
			x.come()
		} else {
			_ = x.j.write(message{typ: msgCancel, id: x.m.id}) // a failure ends the job
		}
	}
	limit, cancel := context.WithTimeout(context.Background(), x.j.cancelTime)
	defer cancel()
	if x.await(limit) {
		return x.vals, x.err
	}
	return nil, x.wrap(fmt.Errorf("%w: %w", ErrUndecided, x.gaveUp))
}

// await returns true when the result of x is known, and false if ctx ends before. If the
// context has ended already, this rank does not join.
func (x *Exchange) await(ctx context.Context) bool {
	if !x.over && x.begun.IsZero() && ctx.Err() == nil {
		x.come()
	}
	if x.over || x.begun.IsZero() {
		return x.over
	}
	select {
	case m := <-x.answer:
		x.end(m)
	case <-x.j.done:
		select {
		case m := <-x.answer: // it arrived just before the end
			x.end(m)
		default:
			x.over, x.err = true, x.wrap(x.j.Err())
		}
	case <-ctx.Done():
		select {
		case m := <-x.answer:
			x.end(m)
		default:
		}
	}
	return x.over
}

// come sends this rank's contribution to the server.
func (x *Exchange) come() {
	x.begun = time.Now()
	var err error
	if x.answer, err = x.j.begin(&x.m); err != nil {
		x.over, x.err = true, x.wrap(err)
	}
}

// end records the server's result.
func (x *Exchange) end(m message) {
	x.over = true
	x.m.val = nil
	err := x.j.result(x.op, x.key, x.begun, m)
	switch pe := (*GivenUpError)(nil); {
	case err == nil && (m.typ != msgValues || len(m.vals) != x.j.cfg.Size):
		err = x.wrap(fmt.Errorf("%w: frame type %d with %d values", ErrProtocol, m.typ, len(m.vals)))
	case err == nil:
		x.vals = m.vals
	case m.code == codeTimeout && x.gaveUp != nil: // given up as this rank has requested
		if !errors.Is(x.gaveUp, context.DeadlineExceeded) {
			err = x.wrap(fmt.Errorf("%w: %s", x.gaveUp, m.text))
		}
		err = &GivenUpError{Op: x.op, Key: x.key, Rank: x.j.cfg.Rank, Detail: m.text, Err: err, own: true}
	case errors.As(err, &pe):
		pe.Err = x.gaveUp
	}
	x.err = err
}

// late returns the error of a wait that timed out, with the ranks that x waits for.
func (x *Exchange) late() error {
	te := x.missing()
	te.After = time.Since(x.begun)
	return te
}

// Missing asks the server for the ranks that have not joined, and returns the first
// MaxListed of them. It may be called concurrently with Wait or Finish.
func (x *Exchange) Missing() []int { return x.missing().Missing }

func (x *Exchange) missing() *TimeoutError {
	ctx, cancel := context.WithTimeout(context.Background(), x.j.cancelTime)
	defer cancel()
	te := &TimeoutError{Op: x.op, Key: x.key, Detail: "the wire-up server does not answer"}
	ask := message{typ: msgMissing, key: x.m.key}
	answer, err := x.j.begin(&ask)
	if err != nil {
		return te
	}
	defer x.j.forget(ask.id, answer)
	select {
	case m := <-answer:
		te.take(m)
		if m.code == codeOK {
			te.Detail = "the call has just ended"
		}
	case <-x.j.done:
	case <-ctx.Done():
	}
	return te
}

func (x *Exchange) wrap(err error) error { return fmt.Errorf("wireup: %s %q: %w", x.op, x.key, err) }
