//go:build race

package rmanet

import (
	"runtime"
	"unsafe"
)

// edges stands for all streams, as ioSync of internal/poll does for all descriptors. The
// race detector does not see data moved by links, so it is told that a Write happens before
// every later Read.
var edges byte

// release is called before written data is sent.
func release() { runtime.RaceReleaseMerge(unsafe.Pointer(&edges)) }

// acquire is called after data was read to p, which the link may have written.
func acquire(p []byte) {
	runtime.RaceAcquire(unsafe.Pointer(&edges))
	runtime.RaceWriteRange(unsafe.Pointer(unsafe.SliceData(p)), len(p))
}
