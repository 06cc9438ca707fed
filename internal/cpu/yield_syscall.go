//go:build linux || freebsd

package cpu

import "golang.org/x/sys/unix"

// Yield gives the processor to another runnable thread of the system (sched_yield).
// runtime.Gosched would only run other goroutines of this process; the awaited peer is
// usually another process or a kernel thread.
//
// Afterwards it stops for the collector, if that has asked meanwhile. A loop of yields and turns
// of runtime.Gosched would not: a request needs a function that checks the stack, and a turn
// forgets it. A collector on the same processor runs only while this thread yields, so it would
// find the goroutine running each time, and wait for ever.
func Yield() {
	unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	lastYield.Store(Ticks())
	preemptible(0)
}

// preemptible is a point where the runtime can stop the goroutine: a function with a frame, which
// checks the stack when it is called.
//
//go:noinline
func preemptible(calls int) {
	if calls > 0 {
		preemptible(calls - 1)
	}
}
