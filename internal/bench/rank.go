package bench

import (
	"context"
	"encoding/json"
	"runtime"
	"time"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/sampling"
)

// Pin keeps the calling goroutine on a processor of its own for rank 0 or 1, if two are
// available, until undo is called.
func Pin(rank int) (undo func()) { return pin(rank) }

// Waiter returns a function that waits as the measuring loops of this package do; pinned
// says that Pin was called. Not for concurrent use.
func Waiter(pinned bool) func(n int) {
	s := cpu.Spinner{Locked: pinned}
	return func(n int) {
		if n == 1 {
			s.Reset()
		}
		s.Wait()
	}
}

// Agree ends a step. Both ranks call it with their own outcome, and both return an error
// if either failed.
func Agree(ctx context.Context, c Control, mine error) error { return agree(ctx, c, mine) }

// Share sends rank 0's request to rank 1. Both sides call check: rank 1 does not trust
// the request.
func Share(ctx context.Context, c Control, req any, check func() error) error {
	var mine []byte
	if c.Rank() == 0 {
		err := check()
		if err == nil {
			mine, err = json.Marshal(req)
		}
		if err != nil {
			return err
		}
	}
	b, err := c.Exchange(ctx, mine)
	if err != nil {
		return err
	}
	if c.Rank() == 1 {
		if err = json.Unmarshal(b, req); err == nil {
			err = check()
		}
		err = wrap("request of rank 0", err)
	}
	return agree(ctx, c, err)
}

// Sample measures the link and returns parameters of the cost model. Both ranks call
// it. It leaves the link as it was.
func Sample(ctx context.Context, c Control, conn Conn, budget time.Duration) (sampling.Result, error) {
	return sampleOnce(ctx, c, conn, PlogpRequest{Budget: budget, MaxSize: sampling.DefaultMaxSize})
}

// spinner returns the wait of the measuring loops. How soon it yields depends on the
// number of ranks and of the processors that they are pinned to or may use. A goroutine locked to its
// thread by pin does not yield to others of its process; they have nothing to do during a
// measurement, and on a single processor the runtime's preemption lets them run.
func (r *Request) spinner() cpu.Spinner {
	s := cpu.Spinner{Locked: r.Pin}
	if r.Ranks > 0 {
		n := runtime.NumCPU()
		if k := len(Cores()); r.Pin && k > 1 {
			n = k
		}
		p := cpu.For(float64(r.Ranks)/float64(n), n)
		s.Policy = &p
	}
	return s
}
