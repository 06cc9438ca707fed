package verbs

import "golang.org/x/sys/unix"

// errNoData is the kernel's error for an empty entry of a GID table.
const errNoData = unix.ENODATA

func memlockLimit() uint64 {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err != nil {
		return NoLimit
	}
	return l.Cur // RLIM_INFINITY is all ones
}
