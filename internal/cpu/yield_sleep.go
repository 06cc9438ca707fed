//go:build !linux && !freebsd

package cpu

import "time"

// Yield gives the processor to another runnable thread of the system. Go has no sched_yield
// on this system; a thread that sleeps gives the processor away as well, for longer.
func Yield() {
	time.Sleep(time.Microsecond) // sleep: the shortest that lets other processes run
	lastYield.Store(Ticks())
}
