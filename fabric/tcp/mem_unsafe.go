package tcp

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/seed33544411/rma/fabric"
)

// word is the 8-byte word at addr, which is a multiple of 8 and was checked
// against a registered region.
func word(addr uint64) *uint64 {
	return (*uint64)(*(*unsafe.Pointer)(unsafe.Pointer(&addr)))
}

// place copies src to addr. If it ends on an 8-byte boundary, its last 8 bytes
// are stored last and at once, so that who sees them sees the rest too.
func place(addr uint64, src []byte) {
	n := len(src)
	if n >= 8 && (addr+uint64(n))&7 == 0 {
		n -= 8
		if n > 0 {
			copy(fabric.BytesAt(addr, n), src)
		}
		atomic.StoreUint64(word(addr+uint64(n)), binary.NativeEndian.Uint64(src[n:]))
		return
	}
	copy(fabric.BytesAt(addr, n), src)
}

// fetchAdd and compareSwap return the old value.
func fetchAdd(addr, add uint64) uint64 { return atomic.AddUint64(word(addr), add) - add }

func compareSwap(addr, expected, value uint64) uint64 {
	p := word(addr)
	for {
		if old := atomic.LoadUint64(p); old != expected {
			return old
		}
		if atomic.CompareAndSwapUint64(p, expected, value) {
			return expected
		}
	}
}
