//go:build !linux

package topo

// Allowed is the set of processors that this process was started on. Not known here:
// all that are online.
func Allowed() Set { return Local().Online }
