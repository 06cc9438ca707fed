//go:build unix

package mr

import (
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/offheap"
)

// mapped asks the kernel whether it knows all pages of a range. An asynchronous
// msync does nothing else.
func mapped(addr uint64, n int) error {
	page := uint64(offheap.PageSize)
	first := addr &^ (page - 1)
	last := (addr + uint64(n) - 1) &^ (page - 1)
	return unix.Msync(fabric.BytesAt(first, int(last-first+page)), unix.MS_ASYNC)
}
