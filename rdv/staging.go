package rdv

import (
	"fmt"

	"github.com/seed33544411/rma/fabric"
)

// staging is registered memory given out in spans, as a ring: in order, and
// reused when the oldest spans are back. Spans come back in any order.
type staging struct {
	reg   fabric.Region
	mem   []byte
	spans []span // ring
	first uint32 // number of the oldest span
	n     int    // spans not given back, or behind such
	top   int    // where the next one begins
}

type span struct {
	off, end int
	back     bool
}

// open allocates size bytes that may be given out in up to most spans at once.
func (s *staging) open(link fabric.Link, size, most int) error {
	reg, err := link.Alloc(size, fabric.AccessRemoteRead)
	if err != nil {
		return fmt.Errorf("staging memory of %d bytes: %w", size, err)
	}
	s.reg, s.mem, s.spans = reg, reg.Bytes()[:size:size], make([]span, most)
	return nil
}

// close frees the memory, or says that a peer still reads it.
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

// take gives out n contiguous bytes; ok is false if there is no room now. A
// span of up to half the memory finds room when all others are back.
func (s *staging) take(n int) (number uint32, mem []byte, ok bool) {
	if s.n == len(s.spans) {
		return 0, nil, false
	}
	off := s.top
	if s.n == 0 {
		off = 0
		ok = n <= len(s.mem)
	} else if tail := s.spans[int(s.first)%len(s.spans)].off; s.top > tail {
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
	number = s.first + uint32(s.n)
	s.spans[int(number)%len(s.spans)] = span{off: off, end: off + n}
	s.n++
	s.top = off + n
	return number, s.mem[off : off+n : off+n], true
}

// give takes a span back.
func (s *staging) give(number uint32) {
	s.spans[int(number)%len(s.spans)].back = true
	for s.n > 0 && s.spans[int(s.first)%len(s.spans)].back {
		s.first++
		s.n--
	}
}
