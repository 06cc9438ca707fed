package rma

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
)

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
	ranks   []int       // of the job, by rank of the window; nil if it is one of the job
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
	failed := mem.foreign(e)
	c, all, err := e.windows.together(ctx, e, "window", mem, func() ([]byte, *Region) { return part(mem, failed), nil })
	if err != nil {
		return nil, fmt.Errorf("rma: window: %w", errors.Join(failed, err))
	}
	return newWindow(e, c, mem, all, failed)
}

// newWindow assembles the window from the data that all ranks have brought.
func newWindow(e *Engine, c *collective, mem *Region, all [][]byte, err error) (*Window, error) {
	w := &Window{eng: e, mem: mem, owned: c.mem != nil, number: c.x.Number()}
	if err == nil {
		w.keys, err = keysOf("window", all)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("rma: window: %w", err), w.release())
	}
	return w, nil
}

// JoinWindow returns a window of some ranks of the job, whose keys the caller has exchanged
// itself: part r of the window is the region of keys[r], which belongs to rank ranks[r] of the
// job. mem is this rank's region, and remains the caller's. JoinWindow does not communicate, and
// Free of such a window only flushes the operations of this rank with those ranks. The error wraps
// ErrForeign if mem is not this engine's, and ErrBadKey if there is not one key of a rank of the
// job for each of ranks, or if a key names another rank as its owner. coll.NewWindow makes windows
// of teams with it.
func JoinWindow(e *Engine, mem *Region, ranks []int, keys []Key) (*Window, error) {
	if err := mem.foreign(e); err != nil {
		return nil, fmt.Errorf("rma: join window: %w", err)
	}
	if len(ranks) != len(keys) {
		return nil, fmt.Errorf("rma: join window: %w: %d keys of %d ranks", ErrBadKey, len(keys), len(ranks))
	}
	w := &Window{eng: e, mem: mem, keys: make([]Key, len(keys)), ranks: append([]int{}, ranks...)}
	for i, r := range ranks {
		if r < 0 || r >= e.Size() || keys[i] == (Key{}) {
			return nil, fmt.Errorf("rma: join window: %w: key %d, of rank %d of %d", ErrBadKey, i, r, e.Size())
		}
		if o := keys[i].value().Owner; o != 0 && o != owner(r) {
			return nil, fmt.Errorf("rma: join window: %w: key %d, of rank %d, belongs to memory of rank %d", ErrBadKey, i, r, int(o)-1)
		}
		w.keys[i] = keys[i].of(r)
	}
	return w, nil
}

// Size returns the number of ranks that have a part.
func (w *Window) Size() int { return len(w.keys) }

// Peer returns the peer whose part is that of the rank of the window. It panics if there is no
// such rank.
func (w *Window) Peer(rank int) *Peer {
	if w.ranks != nil {
		rank = w.ranks[rank]
	}
	return w.eng.Peer(rank)
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
// operations: their requests do, and the next flush of the peer. Ranks must free windows in
// the same order; otherwise the error wraps ErrOutOfStep, and nothing is released.
//
// If a rank's ctx ends before that, Free is given up on all ranks, as described at
// Engine.Window, and the window is unchanged: call Free again. If a rank is gone, Free
// does not wait for it: the error wraps ErrPeerGone, and the memory is released. An error
// that wraps ErrInUse means that the memory cannot be released yet, as for Region.Close:
// call Free again. One goroutine of a rank must call it: a second at the same time waits for
// a second call of the other ranks.
func (w *Window) Free(ctx context.Context) error {
	if w.freed.Load() {
		return w.release()
	}
	if w.ranks != nil {
		peers := make([]*Peer, len(w.ranks))
		for i, r := range w.ranks {
			peers[i] = w.eng.Peer(r)
		}
		return flush(ctx, w.eng, peers, waitEnds)
	}
	_ = flush(ctx, w.eng, w.eng.peers, waitEnds)
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
