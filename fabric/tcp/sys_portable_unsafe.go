//go:build darwin || freebsd || rma_portable

package tcp

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Sockets by the portable calls of package unix. They allocate if there are several pieces
// and notify the scheduler of every call: correct, not fast. With the build tag
// rma_portable Linux uses them, to test them.

type iovec struct {
	base uintptr
	len  uintptr
}

type msghdr struct{ pieces [][]byte }

// recvBytes receives up to n bytes to addr.
func recvBytes(fd int, addr uint64, n int) (int, unix.Errno) {
	return result(unix.Read(fd, at(uintptr(addr), uintptr(n))))
}

// recvVec receives into the pieces of v.
func recvVec(fd int, v []iovec, _ int) (int, unix.Errno) {
	var m msghdr
	n, _, _, _, err := unix.RecvmsgBuffers(fd, m.of(v), nil, 0)
	return result(n, err)
}

// sendBytes sends up to n bytes from addr.
func sendBytes(fd int, addr uint64, n int) (int, unix.Errno) {
	return result(unix.SendmsgBuffers(fd, [][]byte{at(uintptr(addr), uintptr(n))}, nil, nil, noSignal))
}

// sendVec sends the pieces of v. v is part of a heap object.
func sendVec(fd int, m *msghdr, v []iovec, _ int) (int, unix.Errno) {
	return result(unix.SendmsgBuffers(fd, m.of(v), nil, nil, noSignal))
}

// of returns the pieces as slices, in memory of m.
func (m *msghdr) of(v []iovec) [][]byte {
	m.pieces = m.pieces[:0]
	for i := range v {
		m.pieces = append(m.pieces, at(v[i].base, v[i].len))
	}
	return m.pieces
}

// at returns memory that does not move while the link uses it: off-heap or pinned.
func at(base, n uintptr) []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&base))), n)
}

func result(n int, err error) (int, unix.Errno) {
	if err == nil {
		return n, 0
	}
	if errno, ok := err.(syscall.Errno); ok {
		return -1, errno
	}
	return -1, unix.EIO
}
