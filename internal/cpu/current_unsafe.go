//go:build linux

package cpu

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// current returns the processor that the calling thread, which the caller has locked, runs on;
// -1 if the system does not tell.
func current() int {
	var n uint32
	if _, _, err := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&n)), 0, 0); err != 0 {
		return -1
	}
	return int(n)
}
