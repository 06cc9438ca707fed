package rma

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/seed33544411/rma/internal/wireup"
)

// collective is this rank's part in a call that all ranks make together, and that comes
// to the same end on all of them: the job's server decides, once, whether it succeeds.
type collective struct {
	op    string
	about any     // what this rank was asked for
	mem   *Region // made for the call; nil if there is none
	x     *wireup.Exchange
}

// doubt holds the last call of an operation if this rank does not know its end.
type doubt struct{ atomic.Pointer[collective] }

// together makes the next call of op with all ranks, and returns what they have brought,
// by rank, and this one's part. On an error, which all ranks get alike, the memory made
// for the call is closed.
//
// A call about which the server was silent (ErrUndecided) is in doubt: the next one
// about the same is its continuation.
func (e *Engine) together(ctx context.Context, d *doubt, op string, about any, bring func() ([]byte, *Region)) (*collective, [][]byte, error) {
	if e.closed.Load() {
		return nil, nil, ErrClosed
	}
	if c := d.Swap(nil); c != nil {
		all, err := c.finish(ctx, d)
		switch {
		case err == nil && c.about == about:
			return c, all, nil
		case err == nil:
			c.drop() // nobody wants it any more
		case errors.Is(err, wireup.ErrUndecided):
			return nil, nil, e.jobError(op, err)
		}
	}
	c := &collective{op: op, about: about}
	mine, mem := bring()
	c.mem = mem
	var err error
	if c.x, err = e.job.Exchange(op, "rma/"+op, mine); err != nil {
		c.drop()
		return nil, nil, e.jobError(op, err)
	}
	all, err := c.finish(ctx, d)
	return c, all, e.jobError(op, err)
}

// finish waits for the end of the call. If ctx ends before, it fails on all ranks.
func (c *collective) finish(ctx context.Context, d *doubt) ([][]byte, error) {
	all, err := c.x.Finish(ctx)
	switch {
	case errors.Is(err, wireup.ErrUndecided):
		d.Store(c)
	case err != nil:
		c.drop()
	}
	return all, err
}

func (c *collective) drop() {
	if c.mem != nil {
		_ = c.mem.Close() // nobody has a key of it, or uses what he has
	}
}
