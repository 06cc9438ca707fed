package bench

import (
	"time"

	"golang.org/x/sys/unix"
)

// processTime is the user's and the system's time that a process of this host has
// used since it began, to the nanosecond: its clock, clock_getcpuclockid(3), which
// the kernel makes of the inverted number and the kind of clock.
func processTime(pid int) (time.Duration, error) {
	const sched = 2 // CPUCLOCK_SCHED
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|sched), &ts); err != nil {
		return 0, err
	}
	return time.Duration(ts.Nano()), nil
}
