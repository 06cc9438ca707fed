package onesided

import (
	"sync/atomic"
	"unsafe"
)

// update32 makes f(word, v) of the aligned word at the start of mem, atomically with
// respect to all atomics of this machine.
func update32(mem []byte, v uint32, f func(a, b uint32) uint32) {
	p := (*uint32)(unsafe.Pointer(unsafe.SliceData(mem[:4])))
	for old := atomic.LoadUint32(p); !atomic.CompareAndSwapUint32(p, old, f(old, v)); {
		old = atomic.LoadUint32(p)
	}
}

// update64 is update32 for words of 8 bytes.
func update64(mem []byte, v uint64, f func(a, b uint64) uint64) {
	p := (*uint64)(unsafe.Pointer(unsafe.SliceData(mem[:8])))
	for old := atomic.LoadUint64(p); !atomic.CompareAndSwapUint64(p, old, f(old, v)); {
		old = atomic.LoadUint64(p)
	}
}
