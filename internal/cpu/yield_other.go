//go:build !linux

package cpu

import "math"

// switches returns nothing: whether another thread has run in a yield the system does not tell.
func switches() (int64, bool) { return 0, false }

// settle does nothing: the system does not tell where a thread runs.
func settle(int, int64) bool { return false }

// systemCall says nothing: not every system has one that is short.
func systemCall() int64 { return math.MaxInt32 }
