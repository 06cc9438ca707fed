package softlink

import (
	"github.com/seed33544411/rma/fabric"
)

// Gather copies the pieces of sgl, in order, to dst and returns the bytes
// copied: all that fit.
func Gather(dst []byte, sgl []fabric.SGE) int {
	n := 0
	for i := range sgl {
		n += copy(dst[n:], fabric.BytesAt(sgl[i].Addr, int(sgl[i].Len)))
	}
	return n
}

// Scatter copies src to the pieces of sgl, in order, and returns the bytes
// copied: all that fit.
func Scatter(sgl []fabric.SGE, src []byte) int {
	n := 0
	for i := range sgl {
		if n == len(src) {
			break
		}
		n += copy(fabric.BytesAt(sgl[i].Addr, int(sgl[i].Len)), src[n:])
	}
	return n
}
