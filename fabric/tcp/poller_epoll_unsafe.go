//go:build linux

package tcp

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// poller reports which sockets are ready. It belongs to the link's owner.
type poller struct {
	fd    int // readable if any of them is
	found [64]unix.EpollEvent
}

// open opens the poller, which also watches the descriptor wake.
func (p *poller) open(wake int) (err error) {
	if p.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	if err = unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, wake, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: -1}); err != nil {
		_ = unix.Close(p.fd)
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

func (p *poller) close() error { return unix.Close(p.fd) }

// set changes the events that a socket of the endpoint at is watched for from have to want.
func (p *poller) set(at seat, fd int, have, want watch) error {
	ev := unix.EpollEvent{Fd: int32(at.idx), Pad: int32(at.gen)}
	if want&watchIn != 0 {
		ev.Events |= unix.EPOLLIN
	}
	if want&watchOut != 0 {
		ev.Events |= unix.EPOLLOUT
	}
	op := unix.EPOLL_CTL_MOD
	switch {
	case have == 0:
		op = unix.EPOLL_CTL_ADD
	case want == 0:
		op = unix.EPOLL_CTL_DEL
	}
	return unix.EpollCtl(p.fd, op, fd, &ev)
}

// ready returns the number of ready sockets, without waiting.
// Hot path.
func (p *poller) ready() int {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&p.found[0])), uintptr(len(p.found)), 0, 0, 0)
	if errno != 0 {
		return 0 // EINTR
	}
	return int(n)
}

// at returns the place of the endpoint of ready socket i, a negative one for the wake-up
// descriptor.
func (p *poller) at(i int) seat {
	ev := &p.found[i]
	return seat{int(ev.Fd), uint32(ev.Pad)}
}
