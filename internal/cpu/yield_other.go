//go:build !linux

package cpu

// switches returns nothing: whether another thread has run in a yield the system does not tell.
func switches() (int64, bool) { return 0, false }

// settle does nothing: the system does not tell where a thread runs.
func settle(int, int64) bool { return false }
