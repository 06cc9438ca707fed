// Package bulk copies large blocks of memory by the best method for their size: through the
// cache, by the processor's string instruction, or past the cache with non-temporal stores.
//
// A [Plan] gives the sizes from which on each [Way] is used. [Default] derives one from the
// processor's features and the host's caches: non-temporal from topo.DMAMin on. [Measure]
// finds one by measurement. Copies of a plan have the effect of the builtin copy, for any
// alignment, length and overlap, and an additional guarantee: on processors that order
// stores (amd64), every store of the copy precedes later stores of the caller; elsewhere the
// caller's barriers order them, as for the builtin copy.
//
// # Why three ways
//
//	Cached   loads and stores of vectors. Each line of the destination is read before
//	         it is overwritten (read for ownership), and stays in this core's cache.
//	String   REP MOVSB on processors that do it fast (ERMS). It need not read what it
//	         overwrites as a whole: 1.3 to 2 times Cached once a copy is larger than the
//	         first cache, most where another core holds the destination's lines.
//	Stream   non-temporal stores of whole lines. Nothing is read for ownership and
//	         nothing evicted, but the reader fetches from memory: a loss as long as
//	         the data would have stayed in a shared cache, a gain beyond.
//
// The runtime's copy streams from 1 MiB on, on amd64, whatever the caches; Cached
// therefore copies in shorter pieces. Pieces also bound how long a copy keeps the
// collector waiting, because assembly is not preempted.
//
// # Concurrency, cost
//
// Plans are values. Copy, Default and Way are for any number of goroutines and do not
// allocate. Measure allocates off-heap memory and takes its budget of time.
//
// Imports internal/cpu, internal/offheap, internal/topo.
//
//	way.go       Way, Plan, Default
//	copy.go      Copy; copy_unsafe.go the borders of the kernels
//	kernel_*.go  kernels: amd64 assembly (kernel_amd64.s), none elsewhere
//	measure.go   Measure
//
// Tests copy every length and alignment between guard pages with every kernel that the
// processor has, and against the builtin copy under fuzzing.
package bulk
