package cpu

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// settle moves this thread to the processor home, unless it runs there, or may not, and reports
// whether it has. If it gets that processor, or gets it back after a yield, only after late ticks,
// a thread computes there: then it returns to where it was. It does not allocate.
func settle(home int, late int64) (moved bool) {
	runtime.LockOSThread() // threads that Go starts meanwhile do not inherit the smaller set
	defer runtime.UnlockOSThread()
	var may, only unix.CPUSet // with more processors than they hold, the system returns an error
	here := current()
	if here == home || unix.SchedGetaffinity(0, &may) != nil || !may.IsSet(here) || !may.IsSet(home) {
		return false
	}
	only.Set(home)
	begun := Ticks()
	if unix.SchedSetaffinity(0, &only) != nil {
		return false
	}
	Yield()
	if moved = Ticks()-begun < late; !moved {
		only.Clear(home)
		only.Set(here)
		_ = unix.SchedSetaffinity(0, &only) // allowed a moment ago
	}
	_ = unix.SchedSetaffinity(0, &may) // what it was
	return moved
}
