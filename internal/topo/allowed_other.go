//go:build !linux

package topo

import "runtime"

// Allowed is the set of processors that this process was started on. Not known here:
// all that are online.
func Allowed() Set { return everyone }

var everyone = fallback(runtime.NumCPU(), 0, 0, 0).Online
