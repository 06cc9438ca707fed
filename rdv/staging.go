package rdv

import (
	"fmt"

	"github.com/seed33544411/rma/fabric"
)

// staging allocates spans of registered memory as a ring: in order, and reused when the
// oldest spans are returned. Spans may be returned in any order.
type staging struct {
	reg   fabric.Region
	mem   []byte
	spans []span // ring
	first int    // position of the oldest span
	n     int    // spans not returned, or behind such spans
	top   int    // where the next one begins
}

type span struct {
	off, end int
	back     bool
}

// open allocates size bytes for at most most spans at once.
func (s *staging) open(link fabric.Link, ep fabric.Endpoint, size, most int) error {
	reg, err := fabric.AllocFor(link, ep, size, fabric.AccessRemoteRead)
	if err != nil {
		return fmt.Errorf("staging memory of %d bytes: %w", size, err)
	}
	s.reg, s.mem, s.spans = reg, reg.Bytes()[:size:size], make([]span, most)
	return nil
}

// close frees the memory, or returns an error if a peer still reads it.
func (s *staging) close() error {
	if s.reg == nil {
		return nil
	}
	if err := s.reg.Close(); err != nil {
		return err
	}
	*s = staging{}
	return nil
}

// take allocates n contiguous bytes in the span at position at. ok is false if there is no room now. A span of up to
// half the memory finds room when all others are returned.
func (s *staging) take(n int) (at int, mem []byte, ok bool) {
	if s.n == len(s.spans) {
		return 0, nil, false
	}
	off := s.top
	if s.n == 0 {
		off = 0
		ok = n <= len(s.mem)
	} else if tail := s.spans[s.first].off; s.top > tail {
		if ok = n <= len(s.mem)-s.top; !ok {
			off = 0
			ok = n <= tail
		}
	} else {
		ok = n <= tail-s.top
	}
	if !ok {
		return 0, nil, false
	}
	at = (s.first + s.n) % len(s.spans)
	s.spans[at] = span{off: off, end: off + n}
	s.n++
	s.top = off + n
	return at, s.mem[off : off+n : off+n], true
}

// give returns the span at a position.
func (s *staging) give(at int) {
	s.spans[at].back = true
	for s.n > 0 && s.spans[s.first].back {
		s.first = (s.first + 1) % len(s.spans)
		s.n--
	}
}
