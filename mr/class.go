package mr

import "math/bits"

const (
	// unit is the granule of pieces: a cache line, so that two pieces never
	// share one between two processors, or a processor and a device.
	unit      = 64
	unitShift = 6

	// stepBits gives 4 classes to each doubling. Fewer would waste more inside
	// pieces (2: up to a half), more would leave more slabs partly used.
	stepBits = 2

	// maxClasses covers pieces of up to a quarter of the largest slab.
	maxClasses = (maxSlabShift-2-unitShift)<<stepBits + 1
)

// classOf returns the smallest class that holds n bytes, n ≥ 1. Classes are 1,
// 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20 … units.
func classOf(n int) int {
	u := uint(n-1) >> unitShift // units less 1
	shift := max(bits.Len(u), stepBits+1) - (stepBits + 1)
	return shift<<stepBits + int(u>>shift)
}

// classSize returns the size of pieces of class c in bytes: less than 1.25 n
// + 64 for each n that classOf maps to c.
func classSize(c int) int {
	const steps = 1 << stepBits
	if c < 2*steps {
		return (c + 1) << unitShift
	}
	shift := c>>stepBits - 1
	return (c - shift<<stepBits + 1) << shift << unitShift
}
