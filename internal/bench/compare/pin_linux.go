package compare

import (
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// start starts c on the processor of a side: a new process inherits the affinity mask of
// the thread that starts it.
func start(c *exec.Cmd, at *Place, side int) error {
	core, pinned := at.Core(side)
	var old, one unix.CPUSet
	if !pinned || unix.SchedGetaffinity(0, &old) != nil {
		return c.Start()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	one.Set(core)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return err
	}
	defer func() { _ = unix.SchedSetaffinity(0, &old) }() // the former mask: allowed
	return c.Start()
}
