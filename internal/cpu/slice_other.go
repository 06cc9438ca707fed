//go:build !linux

package cpu

// ThreadID returns 0: there is no use for the identifier.
func ThreadID() int { return 0 }

// ShortSlice does nothing.
func ShortSlice(int, bool) {}
