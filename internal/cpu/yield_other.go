//go:build !linux

package cpu

// yieldSwitches yields. Whether another thread has run the system does not tell: it counts as
// one.
func yieldSwitches() bool {
	Yield()
	return true
}

// settle does nothing: the system does not tell where a thread runs.
func settle(int, int64) bool { return false }
