package rma

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/seed33544411/rma/fabric"
)

// Region is memory that peers may reach and that operations may use.
type Region struct {
	eng    *Engine
	mem    []byte
	regs   []fabric.Region // by link
	pin    *runtime.Pinner // of memory that the application brought
	closed atomic.Bool
}

// Buffer is a piece of a Region, for operations.
type Buffer struct {
	region *Region
	off, n int
}

// Alloc returns size bytes of zeroed memory outside the Go heap, registered
// for access by all peers.
func (e *Engine) Alloc(size int) (*Region, error) {
	first, err := e.links[0].Alloc(size, fabric.AccessAll)
	if err != nil {
		return nil, fmt.Errorf("rma: alloc of %d bytes: %w", size, err)
	}
	r := &Region{eng: e, mem: first.Bytes(), regs: []fabric.Region{first}}
	return r.register(1)
}

// Register makes memory of the application reachable for all peers. Memory of
// the Go heap is pinned until the region is closed; prefer Alloc.
func (e *Engine) Register(mem []byte) (*Region, error) {
	if len(mem) == 0 {
		return nil, fmt.Errorf("rma: register: %w: no bytes", ErrBounds)
	}
	r := &Region{eng: e, mem: mem, pin: new(runtime.Pinner)}
	r.pin.Pin(&mem[0])
	return r.register(0)
}

// register enters the region with the links from index from on.
func (r *Region) register(from int) (*Region, error) {
	e := r.eng
	for _, l := range e.links[from:] {
		reg, err := l.Register(r.mem, fabric.AccessAll)
		if err != nil {
			r.release()
			return nil, fmt.Errorf("rma: register %d bytes with %s: %w", len(r.mem), l.Name(), err)
		}
		r.regs = append(r.regs, reg)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed.Load() {
		r.release()
		return nil, ErrClosed
	}
	e.regions[r] = struct{}{}
	return r, nil
}

// Bytes is the memory itself. Not to be used after Close of the region or the
// engine: memory of Alloc is unmapped then.
func (r *Region) Bytes() []byte { return r.mem }

// Slice names n bytes from off on. What lies outside the region is refused by
// the operation that it is given to.
func (r *Region) Slice(off, n int) Buffer { return Buffer{region: r, off: off, n: n} }

// Key is what peers need to reach the region.
func (r *Region) Key() Key {
	k := Key{addr: r.regs[0].Addr(), length: uint64(len(r.mem))}
	for i, reg := range r.regs {
		n := r.eng.numbers[i]
		k.has |= 1 << n
		k.rkeys[n] = reg.Key().RKey
	}
	return k
}

// Close withdraws the region: later operations of peers are refused. The
// caller makes sure that none of its own still uses it. Idempotent.
func (r *Region) Close() error {
	r.eng.mu.Lock()
	delete(r.eng.regions, r)
	r.eng.mu.Unlock()
	return r.release()
}

func (r *Region) release() error {
	if !r.closed.CompareAndSwap(false, true) {
		return nil
	}
	var errs []error
	for i := len(r.regs) - 1; i >= 0; i-- { // the first owns the memory
		errs = append(errs, r.regs[i].Close())
	}
	if r.pin != nil {
		r.pin.Unpin()
	}
	return errors.Join(errs...)
}

// sge names the buffer for the link with that index.
func (b Buffer) sge(e *Engine, link int) (fabric.SGE, error) {
	r := b.region
	switch {
	case r == nil || r.eng != e || r.closed.Load():
		return fabric.SGE{}, ErrForeign
	case b.off < 0 || b.n < 0 || b.off > len(r.mem) || b.n > len(r.mem)-b.off:
		return fabric.SGE{}, ErrBounds
	}
	return fabric.NewSGE(r.mem[b.off:b.off+b.n], r.regs[link].LKey()), nil
}
