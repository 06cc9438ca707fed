package gather

import "encoding/binary"

// A header is the prelude, the entries and zeros to a multiple of 8:
//
//	0        2        3        4        8                16
//	| count  | widths |   0    | region | base           | entry 0 | entry 1 | ...
//
// An entry is size, gap and, depending on widths, region.
const preludeSize = 16

// layout is the width of the fields of all entries: bits 0-1 the code of the size (1, 2, 4
// bytes), bits 2-4 that of the gap (0, 1, 2, 4, 8), bit 5 a region of 4 bytes.
type layout uint8

const (
	layoutRegion = 1 << 5
	layoutKnown  = 1<<6 - 1
)

func (l layout) size() int { return 1 << (l & 3) }
func (l layout) gap() int  { return 1 << (l >> 2 & 7) >> 1 }

func (l layout) region() int {
	if l&layoutRegion != 0 {
		return 4
	}
	return 0
}

// entry is the length of one entry.
func (l layout) entry() int { return l.size() + l.gap() + l.region() }

// plain reports whether entries consist of sizes only.
func (l layout) plain() bool { return l < 3 }

// valid reports whether a header of kind k may have layout l.
func (l layout) valid(k Kind) bool {
	return l&^layoutKnown == 0 && l&3 < 3 && l>>2&7 < 5 && (k == Dest || l&layoutRegion == 0)
}

// headerLen is the length of a header of n entries.
func headerLen(n int, l layout) int { return (preludeSize + n*l.entry() + 7) &^ 7 }

func sizeCode(v uint32) layout {
	switch {
	case v < 1<<8:
		return 0
	case v < 1<<16:
		return 1
	}
	return 2
}

func gapCode(v uint64) layout {
	switch {
	case v == 0:
		return 0
	case v < 1<<8:
		return 1
	case v < 1<<16:
		return 2
	case v < 1<<32:
		return 3
	}
	return 4
}

// walk follows entries: it holds the place of the next one without a gap.
type walk struct {
	next   uint64
	region uint32
	full   bool // no entry can follow: next would be 2^64
}

// gap returns the distance from the end of the preceding entry to e. ok is false if e lies
// before that, or ends beyond 2^64. newRegion: e is the first of its region.
func (w *walk) gap(k Kind, e Entry) (gap uint64, newRegion, ok bool) {
	from, full := w.next, w.full
	if k == Seq {
		if e.Region != 0 {
			return 0, false, false
		}
	} else if e.Region != w.region {
		if e.Region < w.region {
			return 0, false, false
		}
		from, full, newRegion = 0, false, true
	}
	if full || e.At < from {
		return 0, false, false
	}
	return e.At - from, newRegion, k == Seq || e.At+uint64(e.Size) >= e.At
}

// step moves past e, which gap has accepted.
func (w *walk) step(k Kind, e Entry) {
	if k == Seq {
		w.next = e.At + 1
		w.full = w.next == 0
		return
	}
	w.next, w.full, w.region = e.At+uint64(e.Size), false, e.Region
}

// shape is the state of a header under construction.
type shape struct {
	w      walk
	layout layout
	n      int
}

// add appends e. ok is false, and s unchanged, if e cannot follow or if the header would
// then be longer than room.
//
// Hot path.
func (s *shape) add(k Kind, e Entry, room int) (ok bool) {
	size := sizeCode(e.Size)
	if s.n > 0 && e.At == s.w.next && e.Region == s.w.region && size <= s.layout&3 && !s.w.full && s.n < MaxCount {
		// The usual case: it follows without a gap and needs no wider field.
		if k == Dest && e.At+uint64(e.Size) < e.At || headerLen(s.n+1, s.layout) > room {
			return false
		}
		s.w.step(k, e)
		s.n++
		return true
	}
	if s.n == MaxCount {
		return false
	}
	w := s.w
	if s.n == 0 {
		w = walk{next: e.At, region: e.Region}
	}
	gap, newRegion, ok := w.gap(k, e)
	if !ok {
		return false
	}
	l := max(s.layout&3, size) | max(s.layout>>2&7, gapCode(gap))<<2 | s.layout&layoutRegion
	if newRegion {
		l |= layoutRegion
	}
	if headerLen(s.n+1, l) > room {
		return false
	}
	w.step(k, e)
	s.w, s.layout = w, l
	s.n++
	return true
}

// appendPrelude appends to b a header of n entries without their fields, and returns the
// place of these: l.entry() bytes each.
func appendPrelude(b []byte, n int, l layout, region uint32, base uint64) (header, entries []byte) {
	at := len(b)
	for k := headerLen(n, l); k > 0; k -= 8 {
		b = binary.LittleEndian.AppendUint64(b, 0)
	}
	h := b[at:]
	binary.LittleEndian.PutUint16(h, uint16(n))
	h[2] = byte(l)
	binary.LittleEndian.PutUint32(h[4:], region)
	binary.LittleEndian.PutUint64(h[8:], base)
	return b, h[preludeSize : preludeSize+n*l.entry()]
}

// append appends the header for entries, whose shape is s.
func (s *shape) append(b []byte, k Kind, entries []Entry) []byte {
	b, fields := appendPrelude(b, s.n, s.layout, entries[0].Region, entries[0].At)
	if s.layout.plain() {
		sizes := Sizes{fields, s.layout.size()}
		for i := range entries {
			sizes.Put(i, int(entries[i].Size))
		}
		return b
	}
	w := walk{next: entries[0].At, region: entries[0].Region}
	size, gapLen, region := s.layout.size(), s.layout.gap(), s.layout.region()
	for _, e := range entries {
		gap, _, _ := w.gap(k, e)
		w.step(k, e)
		putUint(fields, uint64(e.Size), size)
		putUint(fields[size:], gap, gapLen)
		putUint(fields[size+gapLen:], uint64(e.Region), region)
		fields = fields[s.layout.entry():]
	}
	return b
}

// putUint writes the low n bytes of v to the front of b.
func putUint(b []byte, v uint64, n int) {
	switch n {
	case 0:
	case 1:
		b[0] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(b, uint16(v))
	case 4:
		binary.LittleEndian.PutUint32(b, uint32(v))
	default:
		binary.LittleEndian.PutUint64(b, v)
	}
}

// loadUint decodes n bytes at the front of b.
func loadUint(b []byte, n int) uint64 {
	switch n {
	case 0:
		return 0
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(b))
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	}
	return binary.LittleEndian.Uint64(b)
}
