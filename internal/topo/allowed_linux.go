package topo

import "golang.org/x/sys/unix"

// Allowed is the set of processors that this process may run on: the affinity of its
// main thread, which a launcher or a container sets. Threads may be bound more
// narrowly. Empty if the system does not tell.
func Allowed() Set { return AllowedTo(unix.Getpid()) }

// AllowedTo is Allowed of another process. Empty if there is none of that number.
func AllowedTo(pid int) Set {
	var u unix.CPUSet
	var s Set
	if pid <= 0 || unix.SchedGetaffinity(pid, &u) != nil {
		return s
	}
	for c := range 64 * len(u) {
		if u.IsSet(c) {
			s.add(c)
		}
	}
	return s
}
