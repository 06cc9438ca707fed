package rmanet

import (
	"slices"
	"sync"

	"github.com/seed33544411/rma"
)

const (
	// cellSize bounds the messages that large writes are divided into.
	cellSize = 256 << 10

	// slabCells is the number of cells allocated at once: enough for the data that a few
	// streams have in flight, and large enough that big budgets need few regions.
	slabCells = 16
)

// slabs are registered memory for outgoing data: peers fetch from it by the fastest method
// of their link, and no memory has to be pinned. The cell used last is reused first, since
// it may still be in a cache.
type slabs struct {
	eng *rma.Engine

	mu      sync.Mutex
	filled  sync.Cond // signalled when filling becomes 0
	free    []*cell
	filling int // cells that goroutines are copying to
	closed  bool
}

// slab is one region of cells.
type slab struct {
	region *rma.Region
	used   int
}

// cell is memory for one block.
type cell struct {
	slab *slab
	mem  []byte
	off  int
}

func newSlabs(eng *rma.Engine) *slabs {
	s := &slabs{eng: eng}
	s.filled.L = &s.mu
	return s
}

// get returns a cell to be filled, or nil if there is none: the caller uses other memory
// then. The engine's callbacks must not call it.
func (s *slabs) get() *cell {
	s.trim()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.free) == 0 && !s.grow() {
		return nil
	}
	c := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	c.slab.used++
	s.filling++
	return c
}

// trim releases an unused slab if more than two slabs' cells are free.
func (s *slabs) trim() {
	s.mu.Lock()
	if s.closed || len(s.free) <= 2*slabCells {
		s.mu.Unlock()
		return
	}
	var idle *slab
	for _, c := range s.free {
		if c.slab.used == 0 {
			idle = c.slab
			break
		}
	}
	if idle != nil {
		s.free = slices.DeleteFunc(s.free, func(c *cell) bool { return c.slab == idle })
	}
	s.mu.Unlock()
	if idle != nil {
		_ = idle.region.Close() // no operation is in flight there; it fails only if the engine is closed
	}
}

// grow adds a slab; it reports whether there was memory.
func (s *slabs) grow() bool {
	r, err := s.eng.Alloc(slabCells * cellSize)
	if err != nil {
		return false
	}
	b := &slab{region: r}
	for i := range slabCells {
		off := i * cellSize
		s.free = append(s.free, &cell{b, r.Bytes()[off : off : off+cellSize], off})
	}
	return true
}

// full records that a cell of get has been filled.
func (s *slabs) full() {
	s.mu.Lock()
	if s.filling--; s.filling == 0 {
		s.filled.Broadcast()
	}
	s.mu.Unlock()
}

// put releases a cell from which nothing is being fetched.
func (s *slabs) put(c *cell) {
	s.mu.Lock()
	c.slab.used--
	s.free = append(s.free, c)
	s.mu.Unlock()
}

// close makes get return nil from now on, and returns when no goroutine is copying to a
// cell: the engine may then free them.
func (s *slabs) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for s.filling > 0 {
		s.filled.Wait()
	}
}
