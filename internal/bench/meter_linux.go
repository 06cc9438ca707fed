package bench

import (
	"time"

	"golang.org/x/sys/unix"
)

// ProcessTime returns the user and system time that a process of this host has used
// since its start, in ns. It reads the process's clock, clock_getcpuclockid(3), whose ID
// the kernel derives from the inverted process ID and the kind of clock.
func ProcessTime(pid int) (time.Duration, error) {
	const sched = 2 // CPUCLOCK_SCHED
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|sched), &ts); err != nil {
		return 0, err
	}
	return time.Duration(ts.Nano()), nil
}
