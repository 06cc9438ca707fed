package wireup

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// CancelTime is how long a call that timed out waits for the server's list of missing
// ranks. Tests whose outcome must not depend on it change it before the first Join.
var CancelTime = 500 * time.Millisecond

// Put publishes val as this rank's key for Get. A key is set once; a second Put fails with
// ErrExists. val may be reused when Put returns.
func (j *Job) Put(ctx context.Context, key string, val []byte) error {
	if err := checkSizes("put", key, val, MaxValue); err != nil {
		return err
	}
	_, err := j.call(ctx, "put", key, message{typ: msgPut, key: key, val: val})
	return err
}

// Take removes the value that this rank published under key, if any. The key may then be
// published again. Ranks that wait for it continue to wait.
func (j *Job) Take(key string) error {
	if err := checkSizes("take", key, nil, 0); err != nil {
		return err
	}
	return j.write(message{typ: msgTake, key: key})
}

// Get returns the value that rank publishes under key, and waits until it does. It fails
// with a *PeerGoneError if the rank ends without publishing it, and with a *TimeoutError.
func (j *Job) Get(ctx context.Context, rank int, key string) ([]byte, error) {
	if rank < 0 || rank >= j.cfg.Size {
		return nil, fmt.Errorf("wireup: get %q: %w: %d of %d", key, ErrRank, rank, j.cfg.Size)
	}
	if err := checkSizes("get", key, nil, 0); err != nil {
		return nil, err
	}
	m, err := j.call(ctx, "get", key, message{typ: msgGet, rank: uint32(rank), key: key})
	if err == nil && m.typ != msgValue {
		err = fmt.Errorf("wireup: get %q: %w: answered by frame type %d", key, ErrProtocol, m.typ)
	}
	return m.val, err
}

// AllGather returns the values of all ranks, indexed by rank. All ranks must call it; the
// n-th call under a name joins the n-th of the others. A value is at most min(MaxValue,
// MaxGather/Size) bytes. Errors are as for Get; if ctx ends before all have called it, it
// fails on all ranks, with a *GivenUpError.
func (j *Job) AllGather(ctx context.Context, key string, val []byte) ([][]byte, error) {
	return j.gather(ctx, "allgather", key, val)
}

// Barrier returns when all ranks have called it under the name. Errors are as for
// AllGather.
func (j *Job) Barrier(ctx context.Context, name string) error {
	_, err := j.gather(ctx, "barrier", name, nil)
	return err
}

func (j *Job) gather(ctx context.Context, op, key string, val []byte) ([][]byte, error) {
	x, err := j.Exchange(op, key, val)
	if err != nil {
		return nil, err
	}
	return x.Finish(ctx)
}

func checkSizes(op, key string, val []byte, maxVal int) error {
	if len(key) > MaxKey || len(val) > maxVal {
		return fmt.Errorf("wireup: %s %.40q: %w: key of %d bytes (at most %d), value of %d (at most %d)",
			op, key, ErrTooLarge, len(key), MaxKey, len(val), maxVal)
	}
	return nil
}

// unlimited is the key with which Unlimited marks a context.
type unlimited struct{}

// Unlimited returns a context whose waits are not bounded by Config.Timeout: they last
// until ctx ends, the awaited rank is gone, or the job ends.
func Unlimited(ctx context.Context) context.Context {
	return context.WithValue(ctx, unlimited{}, true)
}

// bound adds the configured time-out to ctx if it has no deadline and is not Unlimited.
func (j *Job) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has || j.cfg.Timeout < 0 || ctx.Value(unlimited{}) != nil {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, j.cfg.Timeout)
}

// call sends m and waits for its answer. An answer of msgDone other than OK is returned as
// an error.
func (j *Job) call(ctx context.Context, op, key string, m message) (message, error) {
	start := time.Now()
	if err := ctx.Err(); err != nil {
		return message{}, fmt.Errorf("wireup: %s %q: %w", op, key, err)
	}
	ctx, cancel := j.bound(ctx) // the job's own limit ends a call, but does not keep it from being made
	defer cancel()
	ch, err := j.begin(&m)
	if err != nil {
		return message{}, fmt.Errorf("wireup: %s %q: %w", op, key, err)
	}
	defer j.forget(m.id, ch)
	var late <-chan time.Time
	expired := ctx.Done()
	for {
		select {
		case r := <-ch:
			return r, j.result(op, key, start, r)
		case <-j.done:
			select {
			case r := <-ch: // it arrived just before the end
				return r, j.result(op, key, start, r)
			default:
			}
			return message{}, fmt.Errorf("wireup: %s %q: %w", op, key, j.Err())
		case <-expired:
			werr := j.write(message{typ: msgCancel, id: m.id})
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) || werr != nil {
				return message{}, fmt.Errorf("wireup: %s %q: %w", op, key, ctx.Err())
			}
			t := time.NewTimer(j.cancelTime)
			defer t.Stop()
			expired, late = nil, t.C
		case <-late:
			return message{}, &TimeoutError{Op: op, Key: key, After: time.Since(start), Detail: "the wire-up server does not answer"}
		}
	}
}

// begin sends m with a new id, and returns the channel of its answer.
func (j *Job) begin(m *message) (chan message, error) {
	answer := make(chan message, 1)
	j.mu.Lock()
	if j.err != nil || j.closing {
		err := j.err
		j.mu.Unlock()
		if err == nil {
			err = ErrClosed
		}
		return nil, err
	}
	for j.calls[j.next] != nil {
		j.next++
	}
	m.id = j.next
	j.next++
	j.calls[m.id] = answer
	j.mu.Unlock()
	if err := j.write(*m); err != nil {
		j.forget(m.id, answer)
		return nil, err
	}
	return answer, nil
}

// forget drops an answer that is no longer awaited.
func (j *Job) forget(id uint32, answer chan message) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.calls[id] == answer {
		delete(j.calls, id)
	}
}

func (j *Job) result(op, key string, start time.Time, r message) error {
	if r.typ != msgDone || r.code == codeOK {
		return nil
	}
	switch r.code {
	case codeTimeout:
		te := &TimeoutError{Op: op, Key: key, After: time.Since(start)}
		te.take(r)
		return te
	case codeGone:
		return &PeerGoneError{Op: op, Key: key, Ranks: r.listed(), Detail: r.text}
	case codeGivenUp:
		if len(r.ranks) == 1 {
			return &GivenUpError{Op: op, Key: key, Rank: int(r.ranks[0]), Detail: r.text}
		}
	}
	if r.text != "" {
		return fmt.Errorf("wireup: %s %q: %w: %s", op, key, r.code.err(), r.text)
	}
	return fmt.Errorf("wireup: %s %q: %w", op, key, r.code.err())
}

// write sends one frame.
func (j *Job) write(m message) error {
	frame := m.append(nil)
	j.wmu.Lock()
	defer j.wmu.Unlock()
	j.conn.SetWriteDeadline(time.Now().Add(writeTime))
	_, err := j.out.Write(frame)
	if err == nil && m.typ == msgLeave {
		err = j.out.Close()
	} else if err == nil {
		err = j.out.Flush()
	}
	if err != nil {
		j.conn.Close() // part of the frame may be sent: nothing can follow it
		if e := j.Err(); e != nil {
			return e
		}
		return fmt.Errorf("%w: %w", ErrServerGone, err)
	}
	return nil
}
