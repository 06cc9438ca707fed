//go:build unix

package bench

import "golang.org/x/sys/unix"

// kernel returns the release of the kernel, as uname -r prints it.
func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
