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
	before := int(uintptr(unsafe.Pointer(&b[0])) % uintptr(PageSize))
	pages := unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(&b[0]), -before)), before+len(b))
	if !populate(pages) {
		touch(pages)
	}
}

// touch accesses every page.
func touch(pages []byte) {
	for i := 0; i < len(pages); i += PageSize {
		atomic.AddUint32((*uint32)(unsafe.Pointer(&pages[i])), 0) // a write that changes nothing
	}
}
