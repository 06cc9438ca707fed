package rma

import (
	"bytes"
	"context"
	"encoding/binary"
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
// or on none, as described at Engine.Window.
func AllGatherKeys(ctx context.Context, e *Engine, mem *Region) ([]Key, error) {
	_, all, err := e.gathers.together(ctx, e, "keys", mem, func() ([]byte, *Region) {
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

// Window is a region on every rank, accessed by rank and offset. All ranks create it
// together and exchange its keys in that call. Its methods may be called from any
// goroutine.
//
//	w, err := eng.Window(ctx, 1<<20)
//	req := eng.Peer(to).Put(w.At(to, 4096), w.Slice(0, 64))
type Window struct {
	eng     *Engine
	mem     *Region
	owned   bool
	keys    []Key
	number  uint64      // among the windows of the job
	freed   atomic.Bool // by all ranks
	freeing doubt
}

// Window allocates size bytes of zeroed memory outside the Go heap, registers it as Alloc
// does, and joins it with the memory that the other ranks allocate by the same call. The
// sizes of ranks may differ and may be 0, and the rights may differ as well. All ranks
// must call Window, and make all collective calls in the same order.
//
// The call succeeds on all ranks or on none. If a rank cannot allocate, it fails on all
// ranks. If a rank's ctx ends before all ranks have called it (or, without a deadline,
// Config.SetupTimeout), that rank gives the call up for all ranks: each gets a *PeerError
// that names that rank and wraps ErrGivenUp, or ErrPeerGone if a rank is gone. The next
// call is a new one on all ranks. See also ErrUndecided.
func (e *Engine) Window(ctx context.Context, size int, access ...Access) (*Window, error) {
	var failed error
	c, all, err := e.windows.together(ctx, e, "window", size, func() ([]byte, *Region) {
		var mem *Region
		mem, failed = e.Alloc(size, access...)
		return part(mem, failed), mem
	})
	if err != nil {
		return nil, fmt.Errorf("rma: window: %w", errors.Join(failed, err))
	}
	return newWindow(e, c, c.mem, all, failed)
}

// WindowOf is Window for memory that each rank has registered already. The region remains
// the caller's: Window.Free does not close it. A rank that contributes no memory passes a
// region of Alloc(0).
func (e *Engine) WindowOf(ctx context.Context, mem *Region) (*Window, error) {
	var failed error
	if mem == nil || mem.eng != e || !mem.reg.Live() {
		failed = ErrForeign
	}
	c, all, err := e.windows.together(ctx, e, "window", mem, func() ([]byte, *Region) { return part(mem, failed), nil })
	if err != nil {
		return nil, fmt.Errorf("rma: window: %w", errors.Join(failed, err))
	}
	return newWindow(e, c, mem, all, failed)
}

// part returns the data that a rank brings to a window: its key, or, shorter, why it has
// none.
func part(mem *Region, failed error) []byte {
	if failed != nil {
		return fmt.Appendf(nil, "%.*s", KeySize-1, failed.Error())
	}
	k := mem.Key()
	return k.Append(nil)
}

// newWindow assembles the window from the data that all ranks have brought.
func newWindow(e *Engine, c *collective, mem *Region, all [][]byte, err error) (*Window, error) {
	w := &Window{eng: e, mem: mem, owned: c.mem != nil, keys: make([]Key, len(all)), number: c.x.Number()}
	for r := 0; r < len(all) && err == nil; r++ {
		if len(all[r]) < KeySize {
			err = &PeerError{Rank: r, Op: "window", Err: fmt.Errorf("that rank has no memory for it: %q", all[r])}
			break
		}
		w.keys[r], err = keyOf(r, all[r])
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("rma: window: %w", err), w.release())
	}
	return w, nil
}

// At returns the location off bytes into the rank's part. An operation refuses a location
// outside the part (ErrBounds). At panics if there is no such rank.
func (w *Window) At(rank, off int) Remote { return w.keys[rank].At(off) }

// Span returns the range of n bytes of the rank's part that begins at offset off.
func (w *Window) Span(rank, off, n int) Span { return w.At(rank, off).Span(n) }

// Key returns the key of the rank's part.
func (w *Window) Key(rank int) Key { return w.keys[rank] }

// Len returns the size of the rank's part in bytes.
func (w *Window) Len(rank int) int { return w.keys[rank].Len() }

// Bytes returns this rank's part. It must not be used after Free.
func (w *Window) Bytes() []byte { return w.mem.Bytes() }

// Slice returns the n bytes of this rank's part that begin at offset off.
func (w *Window) Slice(off, n int) Buffer { return w.mem.Slice(off, n) }

// Region returns this rank's part as a region.
func (w *Window) Region() *Region { return w.mem }

// Free waits until all operations of this rank with its peers are complete and all ranks
// have called Free, and then releases the memory. It does not report errors of those
// operations: their requests do. Ranks must free windows in the same order; otherwise the
// error wraps ErrOutOfStep, and nothing is released.
//
// If a rank's ctx ends before that, Free is given up on all ranks, as described at
// Engine.Window, and the window is unchanged: call Free again. If a rank is gone, Free
// does not wait for it: the error wraps ErrPeerGone, and the memory is released. An error
// that wraps ErrInUse means that the memory cannot be released yet, as for Region.Close:
// call Free again.
func (w *Window) Free(ctx context.Context) error {
	if w.freed.Load() {
		return w.release()
	}
	_ = w.eng.FlushAll(ctx)
	mine := binary.AppendUvarint(nil, w.number)
	_, all, err := w.freeing.together(ctx, w.eng, "free", w, func() ([]byte, *Region) { return mine, nil })
	for r, b := range all {
		if !bytes.Equal(b, all[0]) && err == nil {
			err = &PeerError{Rank: r, Op: "free", Err: fmt.Errorf("%w: ranks free different windows", ErrOutOfStep)}
		}
	}
	if errors.Is(err, ErrGivenUp) || errors.Is(err, ErrUndecided) || errors.Is(err, ErrOutOfStep) {
		return fmt.Errorf("rma: free window: %w", err)
	}
	w.freed.Store(true)
	if err != nil {
		err = fmt.Errorf("rma: free window: %w", err)
	}
	return errors.Join(err, w.release())
}

func (w *Window) release() error {
	if !w.owned {
		return nil
	}
	return w.mem.Close()
}
