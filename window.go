package rma

import (
	"context"
	"errors"
	"fmt"
)

// Window is memory of every rank that all reach by rank and offset: made by all
// ranks together, it needs no exchange of keys. Its methods may be called from any
// goroutine.
//
//	w, err := eng.Window(ctx, 1<<20)
//	req := eng.Peer(to).Put(w.At(to, 4096), w.Slice(0, 64))
type Window struct {
	eng   *Engine
	mem   *Region
	owned bool
	keys  []Key
}

// Window allocates size bytes, zeroed, registered, outside the Go heap, and joins
// them with those that the other ranks allocate by the same call; sizes may differ. All
// ranks must call it, in the same order if there are several. If a rank cannot, it
// fails on all of them.
func (e *Engine) Window(ctx context.Context, size int) (*Window, error) {
	mem, err := e.Alloc(size)
	return e.window(ctx, mem, true, err)
}

// WindowOf is Window of memory that each rank has registered already. The region
// stays the caller's.
func (e *Engine) WindowOf(ctx context.Context, mem *Region) (*Window, error) {
	var err error
	if mem == nil || mem.eng != e || !mem.reg.Live() {
		err = ErrForeign
	}
	return e.window(ctx, mem, false, err)
}

// window exchanges keys, or tells the others why it cannot.
func (e *Engine) window(ctx context.Context, mem *Region, owned bool, failed error) (*Window, error) {
	w := &Window{eng: e, mem: mem, owned: owned && failed == nil, keys: make([]Key, e.Size())}
	if errors.Is(failed, ErrClosed) {
		return nil, failed
	}
	mine := []byte{}
	if failed == nil {
		k := mem.Key()
		mine = k.Append(mine)
	} else {
		mine = fmt.Appendf(mine, "%.*s", KeySize-1, failed.Error())
	}
	all, err := e.job.AllGather(ctx, "rma/window", mine)
	for r := 0; r < len(all) && err == nil; r++ {
		if len(all[r]) < KeySize {
			err = fmt.Errorf("rank %d: %s", r, all[r])
			break
		}
		w.keys[r], err = ParseKey(all[r])
		w.keys[r].rank = int32(r) + 1
	}
	if failed != nil {
		err = failed
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
func (w *Window) Span(rank int, off uint64, n int) Span { return w.keys[rank].Slice(off, n) }

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
// until all ranks have called Free, and releases the memory. Errors of
// operations are not told: their requests have them. If ctx ends before, or a rank is
// gone, the memory is released all the same, and what ranks that live still do there is
// refused.
func (w *Window) Free(ctx context.Context) error {
	_ = w.eng.FlushAll(ctx)
	err := w.eng.job.Barrier(ctx, "rma/free")
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
