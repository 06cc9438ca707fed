package cpu

import "golang.org/x/sys/unix"

// switches returns how often this thread has had to leave a processor that it did not wait on:
// for another one, in a yield or at the end of its time.
func switches() (n int64, ok bool) {
	var u unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_THREAD, &u)
	return int64(u.Nivcsw), err == nil //nolint:unconvert // of 4 bytes on some systems
}
