package gather

// A list is the header of a gather whose segments lie elsewhere: behind it where the caller
// has put them, or not in the request at all, because they are requested.

// ListMin is the length of the shortest list.
const ListMin = preludeSize + 8

// AppendList appends to b the header of as many of the first entries as fit: with their
// segments, which the caller adds, it takes at most room bytes. It ends before an entry
// whose place does not ascend, or that overlaps the preceding one: the next list begins
// there. n is the number of its entries; if it is 0, nothing was appended. Allocates only
// to grow b.
//
// Hot path.
func AppendList(b []byte, k Kind, entries []Entry, room int) (_ []byte, n int) {
	var s shape
	for i := range entries {
		size := int(entries[i].Size)
		if size > room || !s.add(k, entries[i], room-size) {
			break
		}
		room -= size
	}
	if s.n == 0 {
		return b, 0
	}
	return s.append(b, k, entries[:s.n]), s.n
}

// ParseList is Parse for a header alone: b is as long as the header, and body is the sum of
// its sizes.
//
// Hot path.
func (h *Header) ParseList(k Kind, b []byte) (body uint64, err error) {
	one := [1][]byte{b}
	body, length, err := h.parse(k, one[:])
	switch {
	case err != nil:
		return 0, err
	case length != len(b):
		h.n = 0
		return 0, &HeaderError{-1, "bytes behind the list"}
	}
	return body, nil
}
