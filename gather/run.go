package gather

import "encoding/binary"

// Headers of runs: segments of kind Seq whose numbers follow one another, which is
// what a queue of small messages is. Their entries are sizes and nothing else.

// RunWidth is how wide the sizes of a run are in its header, 1, 2 or 4 bytes, where
// or is all of them combined by OR.
func RunWidth(or uint32) int { return sizeCode(or).size() }

// RunLen is the length in bytes of the header of a run of n segments, 1 to MaxCount.
func RunLen(n, width int) int { return headerLen(n, widthCode(width)) }

func widthCode(width int) layout { return layout(width >> 1) }

// AppendRun appends to b the header of n segments, 1 to MaxCount, numbered from
// base on, which must not pass 2^64-1. sizes is where in it the sizes stand, little-endian and
// width bytes each, for the caller to fill in: what a Packer makes of such
// entries, without them. Allocates only to grow b. Short path.
func AppendRun(b []byte, base uint64, n, width int) (header, sizes []byte) {
	at := len(b)
	for k := RunLen(n, width); k > 0; k -= 8 {
		b = binary.LittleEndian.AppendUint64(b, 0)
	}
	h := b[at:]
	binary.LittleEndian.PutUint16(h, uint16(n))
	h[2] = byte(widthCode(width))
	binary.LittleEndian.PutUint64(h[8:], base)
	return b, h[preludeSize : preludeSize+n*width]
}

// Run opens the payload at hand as that of a run that lies in one part: sizes are
// those of its segments, width bytes each, little-endian, a copy; they add up to
// the length of body, which holds the segments one behind the other; the first
// has number base. ok is false for all others, and after the first Next: take them
// segment by segment. Valid as long as the payload, until the next Open. Short path.
func (s *Splitter) Run() (base uint64, sizes []byte, width int, body []byte, ok bool) {
	h := &s.h
	if s.index != -1 || s.n != 1 || h.kind != Seq || !h.layout.plain() || h.base.next > 1<<63 || !s.live() {
		return 0, nil, 0, nil, false
	}
	width = h.layout.size()
	return h.base.next, h.raw[: h.n*width : h.n*width], width, s.parts[0][h.length:], true
}

// Size is the one at i of sizes that are width bytes each.
func Size(sizes []byte, width, i int) int { return int(loadUint(sizes[i*width:], width)) }
