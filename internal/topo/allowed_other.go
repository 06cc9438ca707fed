//go:build !linux

package topo

import "runtime"

// Allowed returns the processors that this process was started on: all that are online,
// because this system does not report a restriction.
func Allowed() Set { return everyone }

var everyone = fallback(runtime.NumCPU(), 0, 0, 0).Online
