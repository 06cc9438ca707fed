package offheap

import (
	"sync/atomic"
	"unsafe"
)

// Populate has the system provide the pages of b now, for a fraction of what page faults at their
// first accesses would cost. b is writable and not of the Go heap; others may access it
// meanwhile. Where the system lacks the memory, pages are provided at the first access.
func Populate(b []byte) {
	if len(b) == 0 {
		return
	}
	if pages := whole(b); !populate(pages) {
		access(pages)
	}
}

// Touch is Populate, and accesses all pages: the hypervisor of a virtual machine may map each at its
// first access. For memory whose first use is to be measured.
func Touch(b []byte) {
	if len(b) == 0 {
		return
	}
	Populate(b)
	access(whole(b))
}

// whole returns the pages of b, which is not empty.
func whole(b []byte) []byte {
	before := int(uintptr(unsafe.Pointer(&b[0])) % uintptr(PageSize))
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(&b[0]), -before)), before+len(b))
}

// access writes to every page, and changes nothing.
func access(pages []byte) {
	for i := 0; i < len(pages); i += PageSize {
		atomic.AddUint32((*uint32)(unsafe.Pointer(&pages[i])), 0)
	}
}
