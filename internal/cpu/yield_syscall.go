//go:build linux || freebsd

package cpu

import "golang.org/x/sys/unix"

// Yield gives the processor to another runnable thread of the system (sched_yield).
// runtime.Gosched would only run other goroutines of this process; the awaited peer is
// usually another process or a kernel thread.
func Yield() { unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
