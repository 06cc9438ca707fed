package cpu

import "golang.org/x/sys/unix"

// allowed is read before the program binds threads of its own.
var allowed = Thread()

// Allowed returns the processors that this process was started on, as restricted by a
// launcher, taskset or a container. Threads may be bound more narrowly later. Empty if the
// system does not report them.
func Allowed() Set { return allowed }

// Thread returns the processors that the calling thread may run on; empty if the system does
// not report them.
func Thread() (s Set) {
	u := unix.NewCPUSet(MaxCPU)
	if unix.SchedGetaffinityDynamic(0, u) != nil {
		return Set{}
	}
	for c := range MaxCPU {
		if u.IsSet(c) {
			s.add(c)
		}
	}
	return s
}
