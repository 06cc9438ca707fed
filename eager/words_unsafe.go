package eager

import (
	"math/bits"
	"sync/atomic"
	"unsafe"

	syscpu "golang.org/x/sys/cpu"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/offheap"
)

// load64 loads the word at offset off of ring memory with acquire order: loads after it see
// everything that the peer made visible before the word. off must be a multiple of 8 inside
// mem, which starts on a page. Both are checked here, since a wrong offset would go
// unnoticed. Words are little-endian on the wire; see hostWord.
//
// Hot path.
func load64(mem []byte, off int) uint64 {
	p := (*[8]byte)(mem[off : off+8])
	w := atomic.LoadUint64((*uint64)(unsafe.Pointer(p)))
	offheap.Acquire(nil)
	return hostWord(w)
}

// store64 writes a word of the peer's ring with release order, aligned as in load64.
//
// Hot path.
func store64(mem []byte, off int, v uint64) {
	p := (*[8]byte)(mem[off : off+8])
	cpu.StoreRelease((*uint64)(unsafe.Pointer(p)), hostWord(v))
}

// hostWord converts between a number and the little-endian word of the wire.
func hostWord(w uint64) uint64 {
	if syscpu.IsBigEndian { // a constant
		return bits.ReverseBytes64(w)
	}
	return w
}
