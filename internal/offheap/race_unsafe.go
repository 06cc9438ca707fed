//go:build race

package offheap

import (
	"runtime"
	"unsafe"
)

// edges stands for all memory, as ioSync of internal/poll does for all descriptors.
var edges byte

// Release says that what the calling goroutine has done happens before all that follows a later
// Acquire. The race detector does not see atomics in memory outside the Go heap, or data moved
// by links, and is told by it. Without the detector it does nothing.
func Release() { runtime.RaceReleaseMerge(unsafe.Pointer(&edges)) }

// Acquire is the counterpart of Release. A link may have written p before.
func Acquire(p []byte) {
	runtime.RaceAcquire(unsafe.Pointer(&edges))
	runtime.RaceWriteRange(unsafe.Pointer(unsafe.SliceData(p)), len(p))
}
