package cpu

import "golang.org/x/sys/unix"

// Allowed returns the processors that the calling thread may run on: the process's, unless
// the thread was bound. Empty if the system does not report them.
func Allowed() (s Set) {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	for i := range len(set) * 64 {
		if set.IsSet(i) {
			s.Add(i)
		}
	}
	return s
}
