package sampling

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

// word returns the aligned 8-byte word at off of mem, which starts on a page.
func word(mem []byte, off int) *uint64 {
	p := (*[8]byte)(mem[off : off+8])
	return (*uint64)(unsafe.Pointer(p))
}

// loadWord loads a word that the peer writes, with acquire order: later loads see
// everything that the peer made visible before it. Little-endian.
// Hot path.
func loadWord(mem []byte, off int) uint64 {
	return swap(atomic.LoadUint64(word(mem, off)))
}

// storeWord writes a word that a work request will send.
// Hot path.
func storeWord(mem []byte, off int, v uint64) {
	atomic.StoreUint64(word(mem, off), swap(v))
}

// swap converts between the processor's order and little-endian.
func swap(v uint64) uint64 {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], v)
	return binary.LittleEndian.Uint64(b[:])
}
