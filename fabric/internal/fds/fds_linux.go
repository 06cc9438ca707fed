// Package fds joins descriptors in one that is readable when any of them is. Linux only.
package fds

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Join returns an epoll descriptor over all of them.
func Join(all ...int) (int, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("create epoll descriptor: %w", err)
	}
	for _, fd := range all {
		if err := Add(ep, fd); err != nil {
			unix.Close(ep)
			return -1, err
		}
	}
	return ep, nil
}

// Add has ep join fd as well.
func Add(ep, fd int) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
	if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return fmt.Errorf("add descriptor to epoll: %w", err)
	}
	return nil
}

// Close closes a descriptor of Join.
func Close(ep int) error { return unix.Close(ep) }
