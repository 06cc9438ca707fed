package cpu

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Leave moves the calling thread to another of the processors that it may use. It has no effect
// if there is none, or if the system does not tell where the thread runs. It takes three system
// calls and does not allocate.
func Leave() {
	runtime.LockOSThread() // threads that Go starts meanwhile do not inherit the smaller set
	defer runtime.UnlockOSThread()
	var u unix.CPUSet // with more processors than it holds, the system returns an error
	here := current()
	if unix.SchedGetaffinity(0, &u) != nil || !u.IsSet(here) || u.Count() < 2 {
		return
	}
	u.Clear(here)
	if unix.SchedSetaffinity(0, &u) == nil {
		u.Set(here)
		_ = unix.SchedSetaffinity(0, &u) // allowed a moment ago
	}
}
