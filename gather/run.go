package gather

// A run is a gather of kind Seq with consecutive numbers, such as a queue of small
// messages. Its header has only sizes: a sender that knows them writes it without a list of
// entries, and a receiver may read many segments at a time.

// Sizes are the sizes of the segments of a run, in its header.
type Sizes struct {
	b     []byte
	width int // of each, in bytes
}

// Put sets the size of segment i.
//
// Hot path.
func (s Sizes) Put(i, n int) {
	if s.width == 1 {
		s.b[i] = byte(n)
		return
	}
	putUint(s.b[i*s.width:], uint64(n), s.width)
}

// At returns the size of segment i.
//
// Hot path.
func (s Sizes) At(i int) int {
	if s.width == 1 {
		return int(s.b[i])
	}
	return int(loadUint(s.b[i*s.width:], s.width))
}

// Len returns the number of segments.
func (s Sizes) Len() int { return len(s.b) / s.width }

// Ones returns the sizes from segment i on if each has one byte.
//
// Hot path.
func (s Sizes) Ones(i int) (ones []byte, ok bool) {
	if s.width != 1 {
		return nil, false
	}
	return s.b[i:], true
}

// RunLen returns the length in bytes of the header of a run of n segments, 1 to MaxCount;
// sizes is the OR of their sizes.
func RunLen(n int, sizes uint32) int { return headerLen(n, sizeCode(sizes)) }

// AppendRun appends to b the header of n segments, 1 to MaxCount, numbered from base on,
// which must not pass 2^64-1. The caller then sets all sizes. The header is that of a
// Packer for such segments. sizes is as in RunLen. Allocates only to grow b.
//
// Hot path.
func AppendRun(b []byte, base uint64, n int, sizes uint32) ([]byte, Sizes) {
	l := sizeCode(sizes)
	b, fields := appendPrelude(b, n, l, 0, base)
	return b, Sizes{fields, l.size()}
}

// Ahead returns the current segment of a run and those after it, if the payload lies in one
// part: their sizes, and their consecutive bytes. Call Skip with the number of segments
// used. ok is false for all other gathers, before the first Next and after the last
// segment: read those segment by segment. Valid as long as the payload, until the next
// Open; sizes is a copy, and the peer may change body.
//
// Hot path.
func (s *Splitter) Ahead() (sizes Sizes, body []byte, ok bool) {
	h := &s.h
	if !s.run || s.n != 1 || uint(s.index) >= uint(h.n) || !s.live() {
		return Sizes{}, nil, false
	}
	end := h.n * s.width
	return Sizes{h.raw[s.index*s.width : end : end], s.width}, s.parts[0][s.at:], true
}

// Skip is equivalent to n calls of Next, n at least 1, after Ahead. bytes is the sum of the
// sizes of the skipped segments, from the current one on.
//
// Hot path.
func (s *Splitter) Skip(n, bytes int) bool {
	s.index += n - 1
	s.next = s.at + bytes
	return s.Next()
}
