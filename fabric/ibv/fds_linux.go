package ibv

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// joinFDs returns an epoll descriptor over a and b.
func joinFDs(a, b int) (int, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("create epoll descriptor: %w", err)
	}
	for _, fd := range []int{a, b} {
		if err := addFD(ep, fd); err != nil {
			unix.Close(ep)
			return -1, err
		}
	}
	return ep, nil
}

// addFD has ep join fd as well.
func addFD(ep, fd int) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
	if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return fmt.Errorf("add descriptor to epoll: %w", err)
	}
	return nil
}

// readyFDs returns the readable descriptors among those that ep joins. If a signal
// interrupts it, it returns none; the next call reports them.
func readyFDs(ep int) (fds [1 + maxPorts]int, n int) {
	var evs [1 + maxPorts]unix.EpollEvent
	got, _ := unix.EpollWait(ep, evs[:], 0)
	for i := range max(got, 0) {
		fds[i] = int(evs[i].Fd)
	}
	return fds, max(got, 0)
}

func closeFD(fd int) error { return unix.Close(fd) }
