package rdv

import (
	"sync/atomic"
	"unsafe"
)

// claimWord returns word i of mem, which starts on a page. Only processes of this host access
// it, so that it has the host's byte order.
func claimWord(mem []byte, i int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer((*[8]byte)(mem[8*i : 8*i+8])))
}
