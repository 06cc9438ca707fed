//go:build !linux && !freebsd

package cpu

import "time"

// Yield gives the processor to another runnable thread of the system. Go reaches
// no sched_yield here; a thread that sleeps gives way as well, for longer.
func Yield() {
	time.Sleep(time.Microsecond) // sleep: the shortest that lets other processes run
}
