package cpu

import (
	"math"

	"golang.org/x/sys/unix"
)

// systemCall returns the time in ticks of a short system call.
func systemCall() int64 {
	best := int64(math.MaxInt32)
	for range 64 {
		a := Ticks()
		unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0) // cannot fail
		best = min(best, Ticks()-a)
	}
	return max(best, 1)
}

// switches returns how often this thread has had to leave a processor that it did not wait on:
// for another one, in a yield or at the end of its time.
func switches() (n int64, ok bool) {
	var u unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_THREAD, &u)
	return int64(u.Nivcsw), err == nil //nolint:unconvert // of 4 bytes on some systems
}
