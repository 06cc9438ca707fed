package gather

// A run is a gather of kind Seq whose numbers follow one another, which is what a
// queue of small messages is. Its header has sizes and nothing else: a sender that
// knows them writes it without a list of entries, and a receiver may take many
// segments in one go.

// Sizes are those of the segments of a run, in its header.
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

// At is the size of segment i.
//
// Hot path.
func (s Sizes) At(i int) int {
	if s.width == 1 {
		return int(s.b[i])
	}
	return int(loadUint(s.b[i*s.width:], s.width))
}

// Len is the number of segments.
func (s Sizes) Len() int { return len(s.b) / s.width }

// Ones returns the sizes from segment i on where each has one byte.
//
// Hot path.
func (s Sizes) Ones(i int) (ones []byte, ok bool) {
	if s.width != 1 {
		return nil, false
	}
	return s.b[i:], true
}

// RunLen is the length in bytes of the header of a run of n segments, 1 to MaxCount,
// where sizes is all of theirs combined by OR.
func RunLen(n int, sizes uint32) int { return headerLen(n, sizeCode(sizes)) }

// AppendRun appends to b the header of n segments, 1 to MaxCount, numbered from
// base on, which must not pass 2^64-1, for the caller to put all sizes there: what a
// Packer makes of such segments. sizes is as of RunLen. Allocates only to grow b.
//
// Hot path.
func AppendRun(b []byte, base uint64, n int, sizes uint32) ([]byte, Sizes) {
	l := sizeCode(sizes)
	b, fields := appendPrelude(b, n, l, 0, base)
	return b, Sizes{fields, l.size()}
}

// Ahead returns the current segment of a run and those behind it, if the payload lies in
// one part: their sizes, and their bytes one behind the other. Skip says how many of them
// were taken. ok is false for all other gathers, before the first Next and behind the
// last: take those segment by segment. Valid as long as the payload, until the next Open;
// sizes are a copy, bytes the peer's to change.
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

// Skip is n times Next, n at least 1, behind Ahead; the segments from the current one on
// that it skips hold bytes.
//
// Hot path.
func (s *Splitter) Skip(n, bytes int) bool {
	s.index += n - 1
	s.next = s.at + bytes
	return s.Next()
}
