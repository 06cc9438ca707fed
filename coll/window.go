package coll

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync/atomic"

	"github.com/seed33544411/rma"
)

// Window is memory of every rank of a team, accessed by rank of the team and offset. It has the
// methods of rma.Window, in which a rank is one of the team: Peer(r) is the peer with the part of
// rank r. Its methods may be called from any goroutine.
//
//	w, err := coll.NewWindow(ctx, team, 1<<20)
//	req := w.Peer(to).Put(w.At(to, 4096), w.Slice(0, 64))
//	a, err := rma.ArrayOf[float64](w.Window)
type Window struct {
	*rma.Window
	team  *Team
	owned bool
	id    uint64 // the same on all ranks
	freed atomic.Bool
}

// partSize is the size of what a rank brings to a window: a byte that says whether it has memory,
// and its key, or why it has none.
const partSize = 128

// NewWindow allocates size bytes of zeroed memory as rma.Engine.Alloc does, and joins it with the
// memory that the other ranks of the team allocate by the same call. The sizes and rights of ranks
// may differ, and sizes may be 0. It is an operation of the team, an Allgather of 128 bytes: teams,
// and tags of a team, do not wait for each other.
//
// If a rank has no memory the call fails on all ranks, with a *rma.PeerError that names that rank
// of the job. If the operation itself fails, as when a context ends, it does so as every operation
// of a team, which is revoked: a rank that has a window already can only free it.
func NewWindow(ctx context.Context, t *Team, size int, access ...rma.Access) (*Window, error) {
	mem, err := t.t.eng.Alloc(size, access...)
	return newWindow(ctx, t, mem, true, err)
}

// NewWindowOf is NewWindow for memory that each rank has registered already. The region remains
// the caller's: Free does not close it.
func NewWindowOf(ctx context.Context, t *Team, mem *rma.Region) (*Window, error) {
	var err error
	if !mem.Belongs(t.t.eng) {
		err = rma.ErrForeign
	}
	return newWindow(ctx, t, mem, false, err)
}

func newWindow(ctx context.Context, t *Team, mem *rma.Region, owned bool, failed error) (w *Window, err error) {
	defer func() {
		if err == nil {
			return
		}
		err = fmt.Errorf("coll: window: %w", errors.Join(failed, err))
		if owned && mem != nil {
			err = errors.Join(err, mem.Close())
		}
	}()
	mine, all := make([]byte, partSize), make([]byte, t.Size()*partSize)
	if failed == nil {
		mine[0] = 1
		copy(mine[1:], mem.Key().Append(nil))
	} else {
		copy(mine[1:], failed.Error())
	}
	if err := Allgather(ctx, t, mine, all); err != nil {
		return nil, err
	}
	keys := make([]rma.Key, t.Size())
	for r := range keys {
		part := all[r*partSize:][:partSize]
		if part[0] == 0 {
			why := fmt.Errorf("that rank has no memory for it: %q", bytes.TrimRight(part[1:], "\x00"))
			return nil, &rma.PeerError{Rank: t.JobRank(r), Op: "window", Err: why}
		}
		if keys[r], err = keyOf(t, r, "window", part[1:]); err != nil {
			return nil, err
		}
	}
	w = &Window{team: t, owned: owned}
	if w.Window, err = rma.JoinWindow(t.t.eng, mem, t.t.ranks, keys); err != nil {
		return nil, err
	}
	h := fnv.New64a()
	_, _ = h.Write(all)
	w.id = h.Sum64()
	return w, nil
}

// Free waits until all operations of this rank with the ranks of the team are complete and all
// ranks have called Free, and then releases the memory. It does not report errors of those
// operations: their requests do, and the next flush of the peer. Ranks must free windows in the
// same order; otherwise the error wraps rma.ErrOutOfStep, and nothing is released.
//
// If the team is revoked or closed, or becomes so because ctx ends or a rank is lost, Free says so,
// and releases the memory without waiting for the others. An error that wraps rma.ErrInUse means
// that the memory cannot be released yet, as for rma.Region.Close: call Free again.
func (w *Window) Free(ctx context.Context) error {
	if w.freed.Load() {
		return w.release()
	}
	_ = w.Window.Free(ctx) // flushes
	all := make([]uint64, w.Size())
	err := Allgather(ctx, w.team, []uint64{w.id}, all)
	for r, id := range all {
		if err == nil && id != w.id {
			why := fmt.Errorf("%w: ranks free different windows", rma.ErrOutOfStep)
			return fmt.Errorf("coll: free window: %w", &rma.PeerError{Rank: w.team.JobRank(r), Op: "free", Err: why})
		}
	}
	w.freed.Store(true)
	if err != nil {
		err = fmt.Errorf("coll: free window: %w", err)
	}
	return errors.Join(err, w.release())
}

func (w *Window) release() error {
	if !w.owned {
		return nil
	}
	return w.Region().Close()
}
