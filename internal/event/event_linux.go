package event

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Event is a descriptor that is readable from Set to Clear.
type Event struct{ fd int }

// New returns an event that is not set. Close it.
func New() (Event, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return Event{-1}, fmt.Errorf("eventfd: %w", err)
	}
	return Event{fd}, nil
}

// FD returns the descriptor to wait for.
func (e Event) FD() int { return e.fd }

// Set makes the descriptor readable. It costs one system call.
// Hot path.
func (e Event) Set() {
	one := [8]byte{1} // any number but 0, in any byte order
	_, _ = unix.Write(e.fd, one[:])
}

// Clear makes the descriptor unreadable until the next Set. It costs one system call.
// Hot path.
func (e Event) Clear() {
	var b [8]byte
	_, _ = unix.Read(e.fd, b[:]) // EAGAIN: it was not set
}

// Close frees the descriptor.
func (e Event) Close() error { return unix.Close(e.fd) }

// Set waits for the descriptors given to NewSet.
type Set struct {
	fd    int
	found [8]unix.EpollEvent
}

// NewSet returns a set of descriptors that stay open until it is closed.
func NewSet(fds ...int) (*Set, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	for _, fd := range fds {
		if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
			unix.Close(ep)
			return nil, fmt.Errorf("watch descriptor %d: %w", fd, err)
		}
	}
	return &Set{fd: ep}, nil
}

// Wait returns when a descriptor is readable, a signal arrived, or d, rounded up to
// milliseconds, is over.
//
// It is a plain epoll_wait, which blocks a thread, and not one in the runtime's poller: the
// runtime polls that only every 10 ms if all processors of the process have goroutines to
// run (measured with GOMAXPROCS=1 beside a goroutine that never blocks: 17 ms a round trip,
// against 0.1-0.35 ms).
func (s *Set) Wait(d time.Duration) error {
	_, err := unix.EpollWait(s.fd, s.found[:], millis(d))
	if errors.Is(err, unix.EINTR) {
		return nil
	}
	return err
}

// Close releases the set; the descriptors stay open.
func (s *Set) Close() error { return unix.Close(s.fd) }
