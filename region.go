package rma

import (
	"context"
	"errors"
	"fmt"
	"runtime/trace"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/mr"
)

// Region is memory that peers may reach and that operations may use. Its
// methods may be called from any goroutine.
type Region struct {
	eng *Engine
	reg *mr.Registration
}

// Buffer is a piece of a Region, for operations.
type Buffer struct {
	region *Region
	off, n int
}

// Alloc returns size bytes of zeroed memory outside the Go heap, registered for peers
// with the rights given; without any, with all. A region of no bytes has a key as well, with
// which nothing can be reached.
func (e *Engine) Alloc(size int, access ...Access) (*Region, error) {
	defer trace.StartRegion(context.Background(), regionRegister).End()
	reg, err := e.memory.Alloc(size, rights(access), offheap.Regions)
	return e.region(reg, err)
}

// Register makes memory of the application reachable for peers, with the rights given;
// without any, with all. Memory of the Go heap is pinned until the region is closed; prefer
// Alloc.
func (e *Engine) Register(mem []byte, access ...Access) (*Region, error) {
	if len(mem) == 0 {
		return nil, fmt.Errorf("rma: register: %w: no bytes", ErrBounds)
	}
	defer trace.StartRegion(context.Background(), regionRegister).End()
	reg, err := e.memory.Register(mem, rights(access))
	return e.region(reg, err)
}

// Invalidate forgets memory that messages came from or went to without being
// registered. The engine keeps such memory pinned and registered, for the next
// message, up to Config.PinnedLimit bytes of the last used: memory of the Go heap
// stays reachable, and peers that were given a key can reach it, until it is evicted
// or invalidated. Call it
//
//   - before memory that is not Go's (mmap, C) is unmapped or mapped anew, always:
//     an adapter would go on using the old pages;
//   - when memory of the heap is to be collected, or kept from peers, at once.
//
// All that shares a byte with mem is forgotten. The error wraps ErrInUse while a
// message is under way there; nothing is forgotten then. Not for memory of Alloc
// and Register: close the region.
func (e *Engine) Invalidate(mem []byte) error {
	if e.closed.Load() {
		return nil // Close forgets everything
	}
	var err error
	e.prog.Do(func() { err = e.unpin(mem) })
	if err != nil {
		return fmt.Errorf("rma: %w", err)
	}
	return nil
}

// unpin forgets what messages and operations have left pinned of mem. Owner's.
func (e *Engine) unpin(mem []byte) error {
	e.prog.AssertOwned()
	var errs []error
	for _, p := range e.pins {
		errs = append(errs, p.Invalidate(mem))
	}
	return errors.Join(errs...)
}

func (e *Engine) region(reg *mr.Registration, err error) (*Region, error) {
	switch {
	case errors.Is(err, mr.ErrClosed):
		return nil, ErrClosed
	case err != nil:
		return nil, fmt.Errorf("rma: %w", err)
	}
	return &Region{eng: e, reg: reg}, nil
}

// Bytes is the memory itself. Not to be used after Close of the region or the
// engine: memory of Alloc is unmapped then.
func (r *Region) Bytes() []byte { return r.reg.Bytes() }

// Slice names n bytes from off on. What lies outside the region is refused by
// the operation that it is given to.
func (r *Region) Slice(off, n int) Buffer { return Buffer{region: r, off: off, n: n} }

// Key is what peers need to reach the region.
func (r *Region) Key() Key {
	k := r.reg.Key()
	k.Owner = owner(r.eng.Rank())
	return newKey(k)
}

// Close withdraws the region: later operations of peers are refused, its memory is
// unmapped or unpinned, and what messages left pinned of it (see Invalidate) is forgotten.
// The error wraps ErrInUse
//
//   - while one-sided operations of this rank, or messages that need its memory pinned, are
//     under way in it: it stays as it is then. Other messages in it are the caller's to
//     wait for;
//   - while a peer is in the middle of a copy to or from it, which on shm one that was
//     stopped can be for long: the region is withdrawn then and its memory stays pinned or
//     mapped until the peer is through or gone.
//
// Memory must be neither unmapped nor used again before Close has returned nil; it may be
// called any number of times.
func (r *Region) Close() error {
	if r.reg.Live() {
		var err error
		k := r.reg.Key()
		r.eng.prog.Do(func() {
			if r.eng.proto.one.Uses(k.Addr, k.Addr+k.Len) {
				err = fmt.Errorf("%w: operations are under way", ErrInUse)
			} else if !r.eng.closed.Load() {
				err = r.eng.unpin(r.reg.Bytes())
			}
		})
		if err != nil && r.reg.Live() {
			return fmt.Errorf("rma: close region: %w", err)
		}
	}
	if err := r.reg.Close(); err != nil {
		return fmt.Errorf("rma: close region: %w", err)
	}
	return nil
}

// bytes is the buffer's memory.
func (b Buffer) bytes() ([]byte, error) {
	switch {
	case b.region == nil || !b.region.reg.Live():
		return nil, ErrForeign
	case uint(b.off) > uint(len(b.region.reg.Bytes())) || uint(b.n) > uint(len(b.region.reg.Bytes())-b.off):
		return nil, ErrBounds
	}
	return b.region.reg.Bytes()[b.off : b.off+b.n : b.off+b.n], nil
}

// sge names the buffer for the link with that index.
func (b Buffer) sge(e *Engine, link int) (fabric.SGE, error) {
	r := b.region
	if r != nil && r.eng == e && e.closed.Load() {
		return fabric.SGE{}, ErrClosed // which closes the regions
	}
	if r == nil || r.eng != e || !r.reg.Live() {
		return fabric.SGE{}, ErrForeign
	}
	s, err := r.reg.SGE(link, b.off, b.n)
	if err != nil {
		return s, ErrBounds
	}
	return s, nil
}
