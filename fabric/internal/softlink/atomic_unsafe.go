package softlink

import (
	"sync/atomic"
	"unsafe"
)

// The 8-byte accesses below take addresses that the caller has checked against
// a registered region and that are multiples of 8. They are sequentially
// consistent against the atomics of every process that maps the memory.

func word(addr uint64) *uint64 {
	return (*uint64)(*(*unsafe.Pointer)(unsafe.Pointer(&addr)))
}

// FetchAdd adds v to the 8 bytes at addr and returns their old value.
func FetchAdd(addr, v uint64) uint64 { return atomic.AddUint64(word(addr), v) - v }

// CompareSwap stores v in the 8 bytes at addr if they equal cmp, and returns their old
// value.
func CompareSwap(addr, cmp, v uint64) uint64 {
	p := word(addr)
	for {
		old := atomic.LoadUint64(p)
		if old != cmp || atomic.CompareAndSwapUint64(p, cmp, v) {
			return old
		}
	}
}

// Load64 reads the 8 bytes at addr.
func Load64(addr uint64) uint64 { return atomic.LoadUint64(word(addr)) }

// Store64 writes the 8 bytes at addr; earlier stores are visible before it.
func Store64(addr, v uint64) { atomic.StoreUint64(word(addr), v) }
