package topo

import "golang.org/x/sys/unix"

// allowed is read before the program binds threads of its own.
var allowed = readAllowed()

// Allowed returns the processors that this process was started on, as restricted by a
// launcher, taskset or a container. Threads may be bound more narrowly later. Empty if the
// system does not report them.
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
