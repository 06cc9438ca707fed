//go:build race

package rmanet

import (
	"runtime"
	"unsafe"
)

// edges stands for all streams, as ioSync of internal/poll does for all descriptors:
// the race detector does not see what links move, so a Write happens before every Read
// that follows.
var edges byte

// release comes before what is written leaves.
func release() { runtime.RaceReleaseMerge(unsafe.Pointer(&edges)) }

// acquire comes behind what was read to p, which the link may have written.
func acquire(p []byte) {
	runtime.RaceAcquire(unsafe.Pointer(&edges))
	runtime.RaceWriteRange(unsafe.Pointer(unsafe.SliceData(p)), len(p))
}
