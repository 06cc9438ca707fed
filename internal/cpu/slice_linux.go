package cpu

import "golang.org/x/sys/unix"

// shortSlice is the shortest time slice that Linux gives on request, in ns.
const shortSlice = 100_000

// ThreadID returns the identifier of the calling thread.
func ThreadID() int { return unix.Gettid() }

// ShortSlice gives a thread of this process a short time slice, or the default again. From
// Linux 6.12 on, a thread that wakes up does not wait for the end of the slice of one that has a
// longer slice. Elsewhere, and where the thread's policy has no slices, it has no effect.
func ShortSlice(thread int, on bool) {
	a, err := unix.SchedGetAttr(thread, 0)
	if err != nil || a.Policy != unix.SCHED_NORMAL {
		return
	}
	if a.Runtime = 0; on {
		a.Runtime = shortSlice
	}
	_ = unix.SchedSetAttr(thread, a, 0)
}
