package ibv

import (
	"unsafe"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/verbs"
)

// Both types equal struct ibv_sge; these lines do not compile if they differ.
var (
	_ [unsafe.Sizeof(fabric.SGE{}) - unsafe.Sizeof(verbs.SGE{})]byte
	_ [unsafe.Sizeof(verbs.SGE{}) - unsafe.Sizeof(fabric.SGE{})]byte
	_ [unsafe.Offsetof(fabric.SGE{}.Len) - unsafe.Offsetof(verbs.SGE{}.Len)]byte
	_ [unsafe.Offsetof(verbs.SGE{}.Len) - unsafe.Offsetof(fabric.SGE{}.Len)]byte
	_ [unsafe.Offsetof(fabric.SGE{}.LKey) - unsafe.Offsetof(verbs.SGE{}.LKey)]byte
	_ [unsafe.Offsetof(verbs.SGE{}.LKey) - unsafe.Offsetof(fabric.SGE{}.LKey)]byte
)

// pieces converts l to fabric's type without copying.
func pieces(l []verbs.SGE) []fabric.SGE {
	return unsafe.Slice((*fabric.SGE)(unsafe.Pointer(unsafe.SliceData(l))), len(l))
}

// sgl converts l to verbs' type without copying.
func sgl(l []fabric.SGE) []verbs.SGE {
	return unsafe.Slice((*verbs.SGE)(unsafe.Pointer(unsafe.SliceData(l))), len(l))
}
