package onesided

import (
	"sync/atomic"
	"unsafe"
)

// Load64 loads the 8-byte word at the start of b, which must lie on a multiple of
// 8. Peers write such words in one piece; what they wrote before may be read
// after it.
func Load64(b []byte) uint64 {
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(unsafe.SliceData(b[:8]))))
}

// Store64 stores the 8-byte word at the start of b, which must lie on a multiple of 8,
// in one piece.
func Store64(b []byte, v uint64) {
	atomic.StoreUint64((*uint64)(unsafe.Pointer(unsafe.SliceData(b[:8]))), v)
}
