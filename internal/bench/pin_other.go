//go:build !linux

package bench

import "runtime"

// pin locks the calling goroutine to its thread until undo is called. The system chooses
// the processor.
func pin(int) (undo func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}

// Cores returns none: processors cannot be chosen here.
func Cores() []int { return nil }
