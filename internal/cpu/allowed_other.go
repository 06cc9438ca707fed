//go:build !linux

package cpu

import "runtime"

// Allowed is the set of processors that this process may use, as far as is known:
// all there are.
func Allowed() (s Set) {
	for i := range runtime.NumCPU() {
		s.Add(i)
	}
	return s
}
