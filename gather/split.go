package gather

// maxParts is the largest number of parts of a payload: the first block of a message, the
// run behind it up to the end of the ring, the run from its start.
const maxParts = 3

// Splitter splits a gather of kind Seq, segment by segment:
//
//	for s.Next() {
//		e := s.Entry()
//		if b, ok := s.Bytes(); ok { use b in place } else { s.Copy(dst) }
//	}
//	err := s.Err()
//
// The zero value is ready for Open. It reuses its buffers.
type Splitter struct {
	h     Header
	run   bool // a run: its sizes are read in place, otherwise entries by it
	width int  // of its sizes
	it    Iter

	cur   Entry
	index int // of the current segment, -1 before the first; of a run, the count after the last
	at    int // its offset in the payload
	next  int // offset of the next one

	// The payload, in n parts, valid while *alive is gen.
	parts [maxParts][]byte
	n     int
	alive *uint64
	gen   uint64
	err   error
}

// Open parses the header of a payload, given in 1 to 3 parts. Segments are valid while
// *alive, if given, keeps its value: a lease increments it when it ends. Errors are a
// *HeaderError.
//
// Hot path.
func (s *Splitter) Open(alive *uint64, payload ...[]byte) error {
	if len(payload) > maxParts {
		panic("gather: payload in more than 3 parts")
	}
	s.alive, s.gen = alive, 0
	if alive != nil {
		s.gen = *alive
	}
	s.parts = [maxParts][]byte{}
	s.n = copy(s.parts[:], payload)
	if s.err = s.h.Parse(Seq, s.parts[:s.n]...); s.err != nil {
		s.n = 0
	}
	s.it = s.h.Iter()
	s.run = s.h.layout.plain() && s.h.base.next <= 1<<63
	s.width = s.h.layout.size()
	s.cur, s.index, s.at, s.next = Entry{}, -1, 0, s.h.Len()
	return s.err
}

// live reports whether the payload may still be read.
func (s *Splitter) live() bool {
	return (s.alive == nil || *s.alive == s.gen) && s.err == nil || s.dead()
}

// dead records why the payload may not be read, and returns false. It is a separate
// function so that live is inlined.
//
//go:noinline
func (s *Splitter) dead() bool {
	if s.alive != nil && *s.alive != s.gen {
		s.err = ErrReleased
		s.parts, s.n = [maxParts][]byte{}, 0
	}
	return false
}

// Next advances to the next segment. It returns false at the end or after an error, see
// Err.
//
// Hot path.
func (s *Splitter) Next() bool {
	if !s.live() {
		return false
	}
	if !s.run {
		return s.nextEntry()
	}
	i := s.index + 1
	if i >= s.h.n {
		s.index = s.h.n
		return false
	}
	n := Sizes{s.h.raw, s.width}.At(i)
	s.cur.At, s.cur.Size = s.h.base.next+uint64(i), uint32(n)
	s.index, s.at = i, s.next
	s.next += n
	return true
}

// nextEntry is Next for gathers that are no runs.
func (s *Splitter) nextEntry() bool {
	e, ok := s.it.Next()
	if !ok {
		return false
	}
	s.cur = e
	s.index++
	s.at = s.next
	s.next += int(e.Size)
	return true
}

// Err returns the error of Next or of an access: ErrReleased, or the error of Open.
func (s *Splitter) Err() error { return s.err }

// Entry returns the description of the current segment.
func (s *Splitter) Entry() Entry { return s.cur }

// Bytes returns the current segment in place. ok is false if it lies in two or three parts
// (see Parts, Copy) or if the lease has ended (see Err). The peer may change the bytes, and
// they end with the lease.
//
// Hot path.
func (s *Splitter) Bytes() (b []byte, ok bool) {
	if s.n == 1 && s.live() {
		return s.parts[0][s.at:s.next:s.next], true
	}
	return s.find()
}

// find is Bytes for a payload in several parts.
func (s *Splitter) find() (b []byte, ok bool) {
	if !s.live() {
		return nil, false
	}
	off, n := s.at, int(s.cur.Size)
	for i := range s.n {
		p := s.parts[i]
		if off < len(p) || n == 0 {
			if n > len(p)-min(off, len(p)) {
				return nil, false
			}
			off = min(off, len(p))
			return p[off : off+n : off+n], true
		}
		off -= len(p)
	}
	return nil, false
}

// Parts returns the n parts of the current segment, in place, in order. The same conditions
// hold as for Bytes.
func (s *Splitter) Parts() (parts [maxParts][]byte, n int) {
	if !s.live() {
		return parts, 0
	}
	off, left := s.at, int(s.cur.Size)
	for i := 0; i < s.n && left > 0; i++ {
		p := s.parts[i]
		if off >= len(p) {
			off -= len(p)
			continue
		}
		m := min(left, len(p)-off)
		parts[n] = p[off : off+m : off+m]
		n++
		off, left = 0, left-m
	}
	return parts, n
}

// Copy copies the current segment to dst and returns the number of bytes copied: fewer than
// the segment has if dst is shorter, 0 if the lease has ended.
//
// Hot path.
func (s *Splitter) Copy(dst []byte) int {
	if !s.live() {
		return 0
	}
	n, _ := copyAt(dst[:min(len(dst), int(s.cur.Size))], s.at, s.parts[:s.n])
	return n
}
