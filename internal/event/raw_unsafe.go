//go:build linux

package event

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Raw says whether WaitRaw works on this system.
const Raw = true

// WaitRaw is s.Wait in a system call of which Go's scheduler does not know: the goroutine keeps
// its P meanwhile, with which it returns at once, and nobody else runs on it. The scheduler
// interrupts the call by a signal if it has to stop the goroutine, as for the garbage collector.
// Then WaitRaw sets bits of word before the goroutine can be stopped.
func (s *Set) WaitRaw(d time.Duration, word *atomic.Uint32, bits uint32) (ready, interrupted bool, err error) {
	s.raw.limit = unix.NsecToTimespec(int64(max(d, 0)))
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL,
		uintptr(unsafe.Pointer(unsafe.SliceData(s.fds))), uintptr(len(s.fds)), uintptr(unsafe.Pointer(&s.raw.limit)), 0, 0, 0)
	switch errno {
	case 0:
		return n > 0, false, nil
	case unix.EINTR:
		word.Or(bits) // no function call since the system call: the scheduler stops goroutines there
		return false, true, nil
	}
	return false, false, errno
}

// raw is what WaitRaw keeps where the kernel finds it, and no stack that moves.
type raw struct{ limit unix.Timespec }
