package rma

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed33544411/rma/internal/wireup"
)

// collective is this rank's part in a collective call, whose outcome is the same on all
// ranks: the job's server decides, once, whether it succeeds.
type collective struct {
	op    string
	about any     // what this rank was asked for
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
func (e *Engine) together(ctx context.Context, d *doubt, op string, about any, bring func() ([]byte, *Region)) (*collective, [][]byte, error) {
	if e.closed.Load() {
		return nil, nil, ErrClosed
	}
	if c := d.Swap(nil); c != nil {
		all, err := e.finish(ctx, c, d)
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
	all, err := e.finish(ctx, c, d)
	return c, all, e.jobError(op, err)
}

// finish waits for the end of the call. If ctx ends first, the call fails on all ranks.
func (e *Engine) finish(ctx context.Context, c *collective, d *doubt) ([][]byte, error) {
	all, err := e.attending(ctx, c.op, c.x, c.x.Finish)
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

// exchange is the part of *wireup.Exchange that attending uses: the ranks that it waits
// for. None are known if the job's server does not answer in time.
type exchange interface{ Missing() []int }

// attending calls wait, which waits for all ranks, and returns early if one of the ranks
// that x waits for is found to hang, with a *PeerError that names it. To check a late rank,
// this rank connects with it, and with the next one when that rank has come.
func (e *Engine) attending(ctx context.Context, op string, x exchange, wait func(context.Context) ([][]byte, error)) ([][]byte, error) {
	if e.cfg.HangTimeout <= 0 {
		return wait(ctx)
	}
	ctx, stop := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	late := time.AfterFunc(e.cfg.HangTimeout/hangLooks, func() {
		defer close(ended)
		news := make(chan struct{}, 1)
		var looks sync.WaitGroup
		defer looks.Wait()
		looks.Go(func() {
			if ev, found := lookAtLate(ctx, e, x, news); found {
				stop(&PeerError{Rank: ev.Rank, Op: op, Err: ev.Err})
			}
		})
		for ev := range e.Watch(ctx) {
			if ev.State == PeerHung {
				select {
				case news <- struct{}{}:
				default:
				}
			}
		}
	})
	all, err := wait(ctx)
	var hung *PeerError
	found := errors.As(context.Cause(ctx), &hung)
	stop(nil)
	if !late.Stop() {
		<-ended
	}
	switch {
	case err == nil || !found:
		return all, err
	case errors.Is(err, wireup.ErrUndecided):
		return nil, errors.Join(err, hung)
	}
	return nil, hung
}

// lookAtLate connects with a rank that x waits for, and with another one when that has
// come, until one of them is found to hang, or ctx ends. It acts on each report of a hung
// rank, and at intervals, because the late ranks may not have been known then. All waiting
// ranks do so: if each connected with all late ranks, these would have that many
// connections to answer, and be later still.
func lookAtLate(ctx context.Context, e *Engine, x exchange, news <-chan struct{}) (ev PeerEvent, found bool) {
	tick := time.NewTicker(e.cfg.HangTimeout / 4)
	defer tick.Stop()
	for {
		late := x.Missing()
		for _, r := range late {
			if ev := e.watches.state(r); ev.State == PeerHung {
				return ev, true
			}
		}
		if len(late) > 0 {
			e.Peer(lateFor(e.Rank(), late)).conn.Call()
		}
		select {
		case <-news:
		case <-tick.C:
		case <-ctx.Done():
			return ev, false
		}
	}
}

// lateFor returns the one of the late ranks, which are sorted, that the rank checks: the
// next one from it on, so that the choice stays the same while others come. If the list
// ends before the rank, the choice depends on the rank, so that ranks check different ones.
func lateFor(rank int, late []int) int {
	i, _ := slices.BinarySearch(late, rank)
	if i == len(late) {
		i = rank % len(late)
	}
	return late[i]
}

// AllGatherKeys exchanges the keys of one region of each rank and returns them by rank. All
// ranks must call it, and make collective calls in the same order. It succeeds on all ranks
// or on none, as described at Engine.Window.
func AllGatherKeys(ctx context.Context, e *Engine, mem *Region) ([]Key, error) {
	_, all, err := e.together(ctx, &e.gathers, "keys", mem, func() ([]byte, *Region) {
		k := mem.Key()
		return k.Append(nil), nil
	})
	keys := make([]Key, len(all))
	for r := 0; r < len(all) && err == nil; r++ {
		keys[r], err = keyOf(r, all[r])
	}
	if err != nil {
		return nil, fmt.Errorf("rma: %w", err)
	}
	return keys, nil
}
