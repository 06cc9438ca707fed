package testutil

import (
	"sync/atomic"
	"unsafe"
)

// Load64 reads the aligned word at the start of b, which a peer may be writing.
func Load64(b []byte) uint64 { return atomic.LoadUint64(wordOf(b)) }

// Store64 writes the aligned word at the start of b, which a peer may be reading.
func Store64(b []byte, v uint64) { atomic.StoreUint64(wordOf(b), v) }

func wordOf(b []byte) *uint64 {
	p := unsafe.Pointer(unsafe.SliceData(b[:8]))
	if uintptr(p)%8 != 0 {
		panic("testutil: word is not aligned")
	}
	return (*uint64)(p)
}

// Add64 adds v to the aligned word at the start of b and returns the sum.
func Add64(b []byte, v uint64) uint64 { return atomic.AddUint64(wordOf(b), v) }
