package onesided

import (
	"cmp"
	"slices"
)

// few is how many pieces are compared each with each: below, that is faster than
// sorting a copy, and allocates nothing.
const few = 24

// overlap reports whether any two of ps share a byte. Pieces do not wrap around
// the address space. Pieces of the same key only are compared with each other:
// two keys may name two ranks' memory, or one memory twice, which nobody here can
// know.
func overlap(ps []Piece) bool {
	if len(ps) <= few {
		for i := range ps {
			for j := range i {
				a, b := &ps[i], &ps[j]
				if a.Key == b.Key && a.Addr < b.Addr+b.Len && b.Addr < a.Addr+a.Len {
					return true
				}
			}
		}
		return false
	}
	sorted := slices.Clone(ps)
	slices.SortFunc(sorted, func(a, b Piece) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Addr, b.Addr))
	})
	for i := range sorted[1:] {
		a, b := &sorted[i], &sorted[i+1]
		if a.Key == b.Key && b.Addr < a.Addr+a.Len {
			return true
		}
	}
	return false
}
