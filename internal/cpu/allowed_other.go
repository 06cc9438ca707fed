//go:build !linux

package cpu

import "runtime"

// Allowed returns the processors that this process may use: all of them, because this
// system does not report a restriction.
func Allowed() (s Set) {
	for i := range runtime.NumCPU() {
		s.Add(i)
	}
	return s
}
