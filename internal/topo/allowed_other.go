//go:build !linux

package topo

// Allowed is the set of processors that this process may run on. Not known here:
// all that are online.
func Allowed() Set { return Local().Online }

// AllowedTo is Allowed of another process.
func AllowedTo(int) Set { return Local().Online }
