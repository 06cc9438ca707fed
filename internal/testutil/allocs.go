package testutil

import "testing"

// AllocsPerRun is testing.AllocsPerRun for an f that several goroutines take part in: the
// least of up to five series. What a series allocates once does not count, such as an object that
// a pool lacks because more than before were in use at a time, as on a busy machine.
func AllocsPerRun(runs int, f func()) float64 {
	least := testing.AllocsPerRun(runs, f)
	for range 4 {
		if least == 0 {
			break
		}
		least = min(least, testing.AllocsPerRun(runs, f))
	}
	return least
}
