//go:build !linux

package verbs

import "syscall"

// Nothing can be opened on this platform, so neither is used.

const errNoData = syscall.Errno(61) // as on Linux

func memlockLimit() uint64 { return NoLimit }
