//go:build !linux

package verbs

import "syscall"

// Nothing can be opened here, so nobody meets either.

const errNoData = syscall.Errno(61) // as on Linux

func memlockLimit() uint64 { return NoLimit }
