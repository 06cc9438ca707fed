package shm

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/seed33544411/rma/internal/cpu"
)

// overlay returns the T at offset off of mapped memory b. The memory outlives the pointer
// because an endpoint drops both together. It panics on an invalid offset: offsets come
// from this side, never from a peer.
func overlay[T any](b []byte, off int) *T {
	var t T
	if off < 0 || off+int(unsafe.Sizeof(t)) > len(b) || off%8 != 0 {
		panic(fmt.Sprintf("shm: overlay at %d of %d bytes", off, len(b)))
	}
	return (*T)(unsafe.Pointer(&b[off]))
}

// overlays returns n consecutive T from offset off on.
func overlays[T any](b []byte, off, n int) []T {
	var t T
	if n <= 0 || off < 0 || off+n*int(unsafe.Sizeof(t)) > len(b) || off%8 != 0 {
		panic(fmt.Sprintf("shm: %d overlays at %d of %d bytes", n, off, len(b)))
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b[off])), n)
}

// word returns the aligned 8-byte word at addr, which the caller has checked. The number
// becomes a pointer by reinterpretation, as in fabric.BytesAt.
func word(addr uint64) *atomic.Uint64 {
	return (*atomic.Uint64)(*(*unsafe.Pointer)(unsafe.Pointer(&addr)))
}

// release8 stores the aligned 8-byte word at addr, which the caller has checked, in one store
// behind all stores before it. It does not order later accesses behind itself, and does not
// wait for a cache line that the peer polls: see cpu.StoreRelease.
func release8(addr, v uint64) {
	cpu.StoreRelease((*uint64)(*(*unsafe.Pointer)(unsafe.Pointer(&addr))), v)
}

// load8 reads 8 bytes at any address, which the caller has checked.
func load8(addr uint64) uint64 {
	return *(*uint64)(*(*unsafe.Pointer)(unsafe.Pointer(&addr)))
}

// store8 writes 8 bytes at any address, which the caller has checked.
func store8(addr, v uint64) {
	*(*uint64)(*(*unsafe.Pointer)(unsafe.Pointer(&addr))) = v
}
