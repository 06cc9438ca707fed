package fabric

import "unsafe"

// NewSGE names the piece mem, which lies in the region with local key lkey.
// mem must be off-heap or pinned until the request that uses it completes.
func NewSGE(mem []byte, lkey uint32) SGE {
	if len(mem) == 0 {
		return SGE{LKey: lkey}
	}
	return SGE{Addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))), Len: uint32(len(mem)), LKey: lkey}
}

// Addr returns the address of the first byte of mem as SGEs carry it, 0 if
// mem is empty. mem must be off-heap or pinned while the number is used.
func Addr(mem []byte) uint64 {
	if len(mem) == 0 {
		return 0
	}
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
}

// Overlaps reports whether mem has bytes at addresses in [lo, hi).
func Overlaps(mem []byte, lo, hi uint64) bool {
	return len(mem) > 0 && Addr(mem) < hi && lo < Addr(mem)+uint64(len(mem))
}

// BytesAt returns the n bytes at address addr of this process. For links
// only, and only after addr and n have been checked against a registered
// region: any other address is undefined behaviour.
//
// The integer becomes a pointer by reinterpretation: the memory is off-heap or
// pinned, so nothing moves under it, which neither vet nor checkptr can know.
func BytesAt(addr uint64, n int) []byte {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&addr))), n)
}
