//go:build !linux

package bench

import "runtime"

// pin keeps the calling goroutine on one thread until undo is called; which
// processor that runs on is the system's business here.
func pin(int) (undo func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}

// Cores are none: processors cannot be chosen here.
func Cores() []int { return nil }
