package bulk

import "unsafe"

func addr(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// toLine returns the number of bytes of b before the first whole line.
func toLine(b []byte) int { return int(-addr(b) & (line - 1)) }

// overlap reports whether a and b, of equal length, overlap.
func overlap(a, b []byte) bool {
	return addr(a)-addr(b) < uintptr(len(a)) || addr(b)-addr(a) < uintptr(len(a))
}
