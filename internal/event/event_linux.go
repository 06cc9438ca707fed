package event

import (
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

// poll is poll(2) with a time limit that is not rounded up to milliseconds; the kernel adds its
// timer slack, 50 µs by default.
func poll(fds []unix.PollFd, d time.Duration) (n int, err error) {
	ts := unix.NsecToTimespec(int64(max(d, 0)))
	return unix.Ppoll(fds, &ts, nil)
}
