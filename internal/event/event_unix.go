//go:build unix && !linux

package event

import (
	"time"

	"golang.org/x/sys/unix"
)

// Event is a descriptor that is readable from Set to Clear.
type Event = pipe

// New returns an event that is not set. Close it.
func New() (Event, error) { return newPipe() }

// poll is poll(2) with the time limit d.
func poll(fds []unix.PollFd, d time.Duration) (n int, err error) { return unix.Poll(fds, millis(d)) }

// millis rounds d up to milliseconds, because a wait rounded down to 0 would spin.
func millis(d time.Duration) int {
	return int((max(d, 0) + time.Millisecond - 1) / time.Millisecond)
}
