package gather

import "encoding/binary"

// Header is a parsed and checked header. The zero value is ready for Parse. It reuses its
// buffer.
type Header struct {
	raw    []byte // a copy of the entries
	base   walk   // before the first entry
	n      int
	length int // of the header
	kind   Kind
	layout layout
}

// Count returns the number of segments, 0 before a successful Parse.
func (h *Header) Count() int { return h.n }

// Len returns the length of the header in the payload in bytes, a multiple of 8.
func (h *Header) Len() int { return h.length }

// Parse parses the header at the front of a payload, given in parts, and checks it against
// the payload's length. It checks a copy: the payload may change afterwards. A failure is a
// *HeaderError and leaves h empty. It allocates only to grow its buffer, to at most the
// length of the payload.
//
// Hot path.
func (h *Header) Parse(k Kind, payload ...[]byte) error {
	total := uint64(0)
	for _, p := range payload {
		total += uint64(len(p))
	}
	body, length, err := h.parse(k, payload)
	if err == nil && body != total-uint64(length) {
		h.n, h.length = 0, 0
		err = &HeaderError{-1, "sizes do not add up to the payload"}
	}
	return err
}

// parse parses the header at the front of a payload. It returns its length and the sum of
// its sizes.
//
// Hot path.
func (h *Header) parse(k Kind, payload [][]byte) (body uint64, length int, err error) {
	total := uint64(0)
	for _, p := range payload {
		total += uint64(len(p))
	}
	*h = Header{raw: h.raw[:0], kind: k}
	if k != Seq && k != Dest {
		return 0, 0, &HeaderError{-1, "unknown " + k.String()}
	}
	var pre [preludeSize]byte
	if n, _ := copyAt(pre[:], 0, payload); n < preludeSize {
		return 0, 0, &HeaderError{-1, "truncated prelude"}
	}
	n, l := int(binary.LittleEndian.Uint16(pre[:])), layout(pre[2])
	w := walk{next: binary.LittleEndian.Uint64(pre[8:]), region: binary.LittleEndian.Uint32(pre[4:])}
	switch {
	case n == 0:
		return 0, 0, &HeaderError{-1, "no segment"}
	case !l.valid(k) || pre[3] != 0:
		return 0, 0, &HeaderError{-1, "unknown field widths"}
	case k == Seq && w.region != 0:
		return 0, 0, &HeaderError{-1, "region in a header of sequence numbers"}
	}
	length = headerLen(n, l)
	if uint64(length) > total {
		return 0, 0, &HeaderError{-1, "more entries than the payload holds"}
	}
	size := length - preludeSize
	if cap(h.raw) < size {
		h.raw = make([]byte, size) //hot:allow grows to the largest header, once
	}
	h.raw = h.raw[:size]
	copyAt(h.raw, preludeSize, payload)
	if body, err = check(k, l, n, w, h.raw); err != nil {
		return 0, 0, err
	}
	h.n, h.layout, h.base, h.length = n, l, w, length
	return body, length, nil
}

// check checks all entries and the padding.
func check(k Kind, l layout, n int, w walk, raw []byte) (body uint64, err error) {
	it := Iter{raw: raw, w: w, left: n, kind: k, layout: l}
	if l.plain() && w.next <= 1<<63 { // 2^16 sizes of 2^32 sum to less: nothing wraps
		size := l.size()
		if size == 1 {
			body = sumBytes(raw[:n])
		} else {
			for i := range n {
				body += loadUint(raw[i*size:], size)
			}
		}
		it.raw, n = raw[n*size:], 0
	}
	for i := range n {
		e, why := it.step()
		if why != "" {
			return 0, &HeaderError{i, why}
		}
		if i == 0 && (e.At != w.next || e.Region != w.region) {
			return 0, &HeaderError{i, "base is not the first entry"}
		}
		body += uint64(e.Size)
	}
	for _, b := range it.raw {
		if b != 0 {
			return 0, &HeaderError{-1, "padding is not zero"}
		}
	}
	return body, nil
}

// sumBytes returns the sum of the bytes of b, less than 2^16 of them, eight at a time: in
// each word the even and the odd ones in four sums of 16 bits, which have room for 128 of
// either.
func sumBytes(b []byte) (sum uint64) {
	const even = 0x00ff00ff00ff00ff
	for len(b) >= 8 {
		var four uint64
		for k := 0; k < 64 && len(b) >= 8; k++ {
			w := binary.LittleEndian.Uint64(b)
			four += w&even + w>>8&even
			b = b[8:]
		}
		sum += four&0xffff + four>>16&0xffff + four>>32&0xffff + four>>48
	}
	for _, x := range b {
		sum += uint64(x)
	}
	return sum
}

// copyAt copies the bytes of parts from off on to dst.
func copyAt(dst []byte, off int, parts [][]byte) (n int, whole bool) {
	for _, p := range parts {
		if off >= len(p) {
			off -= len(p)
			continue
		}
		n += copy(dst[n:], p[off:])
		if off = 0; n == len(dst) {
			break
		}
	}
	return n, n == len(dst)
}

// Iter iterates over the entries of a header. It is valid until the header is parsed again.
type Iter struct {
	raw    []byte
	w      walk
	left   int
	kind   Kind
	layout layout
}

// Iter returns an iterator at the first entry.
func (h *Header) Iter() Iter {
	return Iter{raw: h.raw, w: h.base, left: h.n, kind: h.kind, layout: h.layout}
}

// Next returns the next entry.
//
// Hot path.
func (it *Iter) Next() (e Entry, ok bool) {
	if it.left == 0 {
		return e, false
	}
	if it.layout.plain() {
		it.left--
		size := it.layout.size()
		e = Entry{At: it.w.next, Size: uint32(loadUint(it.raw, size)), Region: it.w.region}
		it.raw = it.raw[size:]
		it.w.step(it.kind, e)
		return e, true
	}
	e, _ = it.step()
	return e, true
}

// step decodes one entry. why is the reason why it is invalid.
func (it *Iter) step() (e Entry, why string) {
	b, l := it.raw, it.layout
	size, gapLen := l.size(), l.gap()
	it.left--
	e.Size = uint32(loadUint(b, size))
	gap := loadUint(b[size:], gapLen)
	e.Region = it.w.region
	from, full := it.w.next, it.w.full
	if l&layoutRegion != 0 {
		e.Region = binary.LittleEndian.Uint32(b[size+gapLen:])
		switch {
		case e.Region < it.w.region:
			return e, "regions do not ascend"
		case e.Region > it.w.region:
			from, full = 0, false
		}
	}
	it.raw = b[l.entry():]
	e.At = from + gap
	switch {
	case full || e.At < from:
		return e, "place beyond 2^64"
	case it.kind == Dest && e.At+uint64(e.Size) < e.At:
		return e, "segment ends beyond 2^64"
	}
	it.w.step(it.kind, e)
	return e, ""
}
