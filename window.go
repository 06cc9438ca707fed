package rma

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
)

// Window is memory of every rank that all reach by rank and offset: made by all
// ranks together, it needs no exchange of keys. Its methods may be called from any
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

// Window allocates size bytes, zeroed, registered, outside the Go heap, and joins
// them with those that the other ranks allocate by the same call. Sizes may differ, and be
// 0, and so may what peers are allowed, which is as for Alloc.
// All ranks must call it, in the same order if there are several.
//
// The call succeeds on all ranks or on none. If a rank cannot allocate, it fails on
// all. If a rank's ctx ends, or Config.SetupTimeout where it has no deadline, before
// all ranks have called it, that rank has given the call up for all: each gets a
// *PeerError that names it and wraps ErrGivenUp, or, if a rank is gone, ErrPeerGone. The
// next call is a new one on all ranks. See also ErrUndecided.
func (e *Engine) Window(ctx context.Context, size int, access ...Access) (*Window, error) {
	var failed error
	c, all, err := e.together(ctx, &e.windows, "window", size, func() ([]byte, *Region) {
		var mem *Region
		mem, failed = e.Alloc(size, access...)
		return part(mem, failed), mem
	})
	if err != nil {
		return nil, fmt.Errorf("rma: window: %w", errors.Join(failed, err))
	}
	return e.window(c, c.mem, all, failed)
}

// WindowOf is Window of memory that each rank has registered already. The region
// stays the caller's. A rank without memory brings Alloc(0).
func (e *Engine) WindowOf(ctx context.Context, mem *Region) (*Window, error) {
	var failed error
	if mem == nil || mem.eng != e || !mem.reg.Live() {
		failed = ErrForeign
	}
	c, all, err := e.together(ctx, &e.windows, "window", mem, func() ([]byte, *Region) { return part(mem, failed), nil })
	if err != nil {
		return nil, fmt.Errorf("rma: window: %w", errors.Join(failed, err))
	}
	return e.window(c, mem, all, failed)
}

// part is what a rank brings to a window: its key, or, shorter, why it has none.
func part(mem *Region, failed error) []byte {
	if failed != nil {
		return fmt.Appendf(nil, "%.*s", KeySize-1, failed.Error())
	}
	k := mem.Key()
	return k.Append(nil)
}

// window is what all ranks have brought, put together.
func (e *Engine) window(c *collective, mem *Region, all [][]byte, err error) (*Window, error) {
	w := &Window{eng: e, mem: mem, owned: c.mem != nil, keys: make([]Key, len(all)), number: c.x.Number()}
	for r := 0; r < len(all) && err == nil; r++ {
		if len(all[r]) < KeySize {
			err = &PeerError{Rank: r, Op: "window", Err: fmt.Errorf("it cannot: %q", all[r])}
			break
		}
		w.keys[r], err = keyOf(r, all[r])
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("rma: window: %w", err), w.release())
	}
	return w, nil
}

// At is the place off bytes into the rank's part. It panics if there is no such
// rank; a place outside is refused by the operation that it is given to.
func (w *Window) At(rank int, off uint64) Remote { return w.keys[rank].At(off) }

// Span names n bytes of the rank's part, from off on.
func (w *Window) Span(rank int, off uint64, n int) Span { return w.At(rank, off).Span(n) }

// Key is the key of the rank's part.
func (w *Window) Key(rank int) Key { return w.keys[rank] }

// Len is the size of the rank's part in bytes.
func (w *Window) Len(rank int) uint64 { return w.keys[rank].Len() }

// Bytes is this rank's part. Not to be used after Free.
func (w *Window) Bytes() []byte { return w.mem.Bytes() }

// Slice names n bytes of this rank's part, from off on.
func (w *Window) Slice(off, n int) Buffer { return w.mem.Slice(off, n) }

// Region is this rank's part.
func (w *Window) Region() *Region { return w.mem }

// Free waits until all operations of this rank with its peers are complete, and
// until all ranks have called Free, and releases the memory. Errors of operations are not
// told: their requests have them. Ranks must free windows in the same order; if they do
// not the error wraps ErrOutOfStep, and nothing is released.
//
// If a rank's ctx ends before, Free has been given up on all ranks, as Window describes, and
// the window stays as it is: call it again. If a rank is gone, nobody can wait for
// it: the error wraps ErrPeerGone, and the memory is released. An error that wraps ErrInUse
// says that it cannot go yet, as that of Region.Close: call Free again.
func (w *Window) Free(ctx context.Context) error {
	if w.freed.Load() {
		return w.release()
	}
	_ = w.eng.FlushAll(ctx)
	mine := binary.AppendUvarint(nil, w.number)
	_, all, err := w.eng.together(ctx, &w.freeing, "free", w, func() ([]byte, *Region) { return mine, nil })
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
