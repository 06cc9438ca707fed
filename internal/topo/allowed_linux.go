package topo

import "golang.org/x/sys/unix"

// allowed is taken before the program binds threads of its own.
var allowed = readAllowed()

// Allowed is the set of processors that this process was started on: what a launcher,
// taskset or a container left it. Threads may be bound more narrowly later. Empty if
// the system does not tell.
func Allowed() Set { return allowed }

func readAllowed() Set {
	var u unix.CPUSet
	var s Set
	if unix.SchedGetaffinity(0, &u) != nil {
		return s
	}
	for c := range 64 * len(u) {
		if u.IsSet(c) {
			s.add(c)
		}
	}
	return s
}
