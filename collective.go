package rma

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/seed33544411/rma/internal/wireup"
)

// collective is this rank's part in a collective call, whose outcome is the same on all
// ranks: the job's server decides, once, whether it succeeds.
type collective struct {
	op    string
	about any     // the arguments of this rank's call
	mem   *Region // made for the call; nil if there is none
	x     *wireup.Exchange
}

// doubt holds the last call of an operation if this rank does not know its outcome.
type doubt struct{ atomic.Pointer[collective] }

// together makes the next call of op with all ranks, and returns the values that they
// brought, by rank, and this rank's part. On an error, which all ranks get alike, the
// memory allocated for the call is closed.
//
// A call about which the server was silent (ErrUndecided) is in doubt: the next call with
// the same arguments continues it.
func (d *doubt) together(ctx context.Context, e *Engine, op string, about any, bring func() ([]byte, *Region)) (*collective, [][]byte, error) {
	if e.closed.Load() {
		return nil, nil, ErrClosed
	}
	if c := d.Swap(nil); c != nil {
		all, err := c.finish(ctx, e, d)
		switch {
		case err == nil && c.about == about:
			return c, all, nil
		case err == nil:
			c.drop() // no call will continue it
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
	all, err := c.finish(ctx, e, d)
	return c, all, e.jobError(op, err)
}

// finish waits for the end of the call. If ctx ends first, the call fails on all ranks.
func (c *collective) finish(ctx context.Context, e *Engine, d *doubt) ([][]byte, error) {
	all, err := attending(ctx, e, c.op, c.x, c.x.Finish)
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
		_ = c.mem.Close() // no rank has a key of it, or uses the one that it has
	}
}

// AllGatherKeys exchanges the keys of one region of each rank and returns them by rank. All
// ranks must call it, and make collective calls in the same order. It succeeds on all ranks
// or on none, as described at Engine.Window. It fails with ErrForeign if mem is nil or closed.
func AllGatherKeys(ctx context.Context, e *Engine, mem *Region) ([]Key, error) {
	failed := mem.foreign(e)
	_, all, err := e.gathers.together(ctx, e, "keys", mem, func() ([]byte, *Region) { return part(mem, failed), nil })
	var keys []Key
	if err = joined(failed, err); err == nil {
		keys, err = keysOf("exchange keys", all)
	}
	if err != nil {
		return nil, fmt.Errorf("rma: %w", err)
	}
	return keys, nil
}
