//go:build !linux

package cpu

// Leave would move the calling thread to another processor; this system binds no threads.
func Leave() {}
