//go:build !race

package offheap

// Release says that what the calling goroutine has done happens before all that follows a later
// Acquire. The race detector does not see atomics in memory outside the Go heap, or data moved
// by links, and is told by it. Without the detector it does nothing.
func Release() {}

// Acquire is the counterpart of Release. A link may have written p before.
func Acquire(p []byte) {}
