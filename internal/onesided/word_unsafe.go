package onesided

import (
	"sync/atomic"
	"unsafe"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/offheap"
)

// Load64 loads the 8-byte word at the start of b, which must be aligned to 8 bytes. Peers
// write such words in one store; their earlier writes may be read after it.
func Load64(b []byte) uint64 {
	w := atomic.LoadUint64(word64(b))
	offheap.Acquire(nil)
	return w
}

// Load loads the word of type t at the start of b, which must be aligned to its size, as
// Load64 does, and returns its bits.
func (t Type) Load(b []byte) uint64 {
	if t.Size() == 4 {
		return uint64(atomic.LoadUint32(word32(b)))
	}
	return Load64(b)
}

// Store64 stores the 8-byte word at the start of b, which must be aligned to 8 bytes, in
// one store.
func Store64(b []byte, v uint64) {
	atomic.StoreUint64(word64(b), v)
}

// Release64 is Store64 that does not wait for the stores before it, and does not order later
// accesses behind itself: see cpu.StoreRelease.
func Release64(b []byte, v uint64) {
	cpu.StoreRelease(word64(b), v)
}

// Do executes m on the word at the start of mem, which must be aligned to 8 bytes,
// atomically with respect to all atomics of this machine, and returns the previous value of
// the word.
// Hot path.
func (m *RMW) Do(mem []byte) uint64 {
	p := word64(mem)
	if !m.Half {
		switch m.Func {
		case Add:
			return atomic.AddUint64(p, m.Arg) - m.Arg
		case Set:
			return atomic.SwapUint64(p, m.Arg)
		case And:
			return atomic.AndUint64(p, m.Arg)
		case Or:
			return atomic.OrUint64(p, m.Arg)
		}
	}
	for {
		old := atomic.LoadUint64(p)
		if now, ok := m.Apply(old); !ok || atomic.CompareAndSwapUint64(p, old, now) {
			return old
		}
	}
}

// word32 returns the word at the start of mem, which must be aligned to 4 bytes.
func word32(mem []byte) *uint32 { return (*uint32)(unsafe.Pointer(unsafe.SliceData(mem[:4]))) }

// word64 returns the word at the start of mem, which must be aligned to 8 bytes.
func word64(mem []byte) *uint64 { return (*uint64)(unsafe.Pointer(unsafe.SliceData(mem[:8]))) }

// viewOf returns mem as elements. It must be aligned to their size.
func viewOf[T number](mem []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mem))), uintptr(len(mem))/unsafe.Sizeof(zero))
}

// memoryOf returns the memory of elements.
func memoryOf[T number](of []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(of))), uintptr(len(of))*unsafe.Sizeof(zero))
}
