//go:build linux

package shm

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// recvHeader is the argument of the system call, kept to avoid an allocation per call.
type recvHeader struct {
	hdr unix.Msghdr
	iov unix.Iovec
}

// recvmsg is unix.Recvmsg without the sender's address: waking from sleep uses it and must
// not allocate.
func (r *receiver) recvmsg(sock int) (n, oobn, flags int, err error) {
	m := &r.msg
	m.iov.Base = &r.buf[0]
	m.iov.SetLen(len(r.buf))
	m.hdr = unix.Msghdr{Iov: &m.iov, Control: &r.oob[0]}
	m.hdr.SetIovlen(1)
	m.hdr.SetControllen(len(r.oob))
	for {
		got, _, errno := unix.Syscall(unix.SYS_RECVMSG, uintptr(sock), uintptr(unsafe.Pointer(&m.hdr)), unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		switch errno {
		case 0:
			return int(got), int(m.hdr.Controllen), int(m.hdr.Flags), nil
		case unix.EINTR:
		default:
			return 0, 0, 0, errno
		}
	}
}

// setIovec sets v to the local piece of n bytes at addr.
func setIovec(v *unix.Iovec, addr uint64, n int) {
	v.Base = (*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&addr)))
	v.SetLen(n)
}
