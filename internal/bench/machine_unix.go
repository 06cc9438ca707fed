//go:build unix

package bench

import "golang.org/x/sys/unix"

// kernel is the kernel's release, as uname -r has it.
func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
