//go:build !linux

package cpu

import "runtime"

// Allowed returns the processors that this process was started on: all that are online,
// because this system does not report a restriction.
func Allowed() (s Set) {
	for c := range runtime.NumCPU() {
		s.add(c)
	}
	return s
}
