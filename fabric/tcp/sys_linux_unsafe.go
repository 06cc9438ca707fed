//go:build linux && !rma_portable

package tcp

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// iovec and msghdr have the kernel's layout, with addresses as integers: they refer to
// off-heap or pinned memory, and need no write barrier.
type iovec struct {
	base uintptr
	len  uintptr
}

type msghdr struct {
	name       uintptr
	namelen    uint32
	iov        uintptr
	iovlen     uintptr
	control    uintptr
	controllen uintptr
	flags      int32
}

// recvBytes receives up to n bytes to addr.
func recvBytes(fd int, addr uint64, n int) (int, unix.Errno) {
	if n > longCall {
		r, _, e := unix.Syscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(addr), uintptr(n), 0, 0, 0)
		return int(r), e
	}
	r, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(addr), uintptr(n), 0, 0, 0)
	return int(r), e
}

// recvVec receives into the pieces of v, total bytes long.
func recvVec(fd int, v []iovec, total int) (int, unix.Errno) {
	if total > longCall {
		r, _, e := unix.Syscall(unix.SYS_READV, uintptr(fd), uintptr(unsafe.Pointer(&v[0])), uintptr(len(v)))
		return int(r), e
	}
	r, _, e := unix.RawSyscall(unix.SYS_READV, uintptr(fd), uintptr(unsafe.Pointer(&v[0])), uintptr(len(v)))
	return int(r), e
}

// sendBytes sends up to n bytes from addr.
func sendBytes(fd int, addr uint64, n int) (int, unix.Errno) {
	r, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(addr), uintptr(n), unix.MSG_NOSIGNAL, 0, 0)
	return int(r), e
}

// sendVec sends the pieces of v, total bytes long. v is part of a heap object.
func sendVec(fd int, m *msghdr, v []iovec, total int) (int, unix.Errno) {
	m.iov = uintptr(unsafe.Pointer(&v[0]))
	m.iovlen = uintptr(len(v))
	if total > longCall {
		r, _, e := unix.Syscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(m)), unix.MSG_NOSIGNAL)
		return int(r), e
	}
	r, _, e := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(m)), unix.MSG_NOSIGNAL)
	return int(r), e
}
