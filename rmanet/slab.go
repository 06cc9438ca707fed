package rmanet

import (
	"slices"
	"sync"

	"github.com/seed33544411/rma"
)

const (
	// cellSize is what large writes are cut into at most.
	cellSize = 256 << 10

	// slabCells is how many cells are allocated at once: what a stream or two have
	// on their way, and few enough regions for a budget of many.
	slabCells = 16
)

// slabs are registered memory for what is on its way out: a peer fetches it from there
// in the shortest way that its link has, and it need not be pinned. What was used last
// is used next, since it may be in a cache still.
type slabs struct {
	eng *rma.Engine

	mu      sync.Mutex
	filled  sync.Cond // filling is 0
	free    []*cell
	filling int // cells that somebody is copying to
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

// get returns a cell to be filled, or nil where there is none: other memory will do.
// Not for the engine's callbacks.
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

// trim gives back a slab that is not used, if there are others.
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
		_ = idle.region.Close() // nothing is under way there: only a closed engine may mind
	}
}

// grow adds a slab, if there is memory.
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

// full says that the cell has been filled.
func (s *slabs) full() {
	s.mu.Lock()
	if s.filling--; s.filling == 0 {
		s.filled.Broadcast()
	}
	s.mu.Unlock()
}

// put takes back a cell that nothing is fetched from any more.
func (s *slabs) put(c *cell) {
	s.mu.Lock()
	c.slab.used--
	s.free = append(s.free, c)
	s.mu.Unlock()
}

// close gives out no more, and returns when nobody is copying to a cell: the engine
// may free them then.
func (s *slabs) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for s.filling > 0 {
		s.filled.Wait()
	}
}
