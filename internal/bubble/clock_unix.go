//go:build unix

package bubble

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// nap is short against what a test inside a bubble waits for, and long against a
// look at what it waits for.
const nap = 100 * time.Microsecond

// Now is the time of the world outside, in nanoseconds since 1970; 0 if unknown.
func Now() int64 {
	var tv syscall.Timeval
	if syscall.Gettimeofday(&tv) != nil {
		return 0
	}
	return tv.Nano()
}

// Nap sleeps for a moment of the world outside. The bubble's clock stands still
// meanwhile, as it does for who reads from a socket.
func Nap() {
	tv := unix.NsecToTimeval(int64(nap))
	_, _ = unix.Select(0, nil, nil, nil, &tv)
}
