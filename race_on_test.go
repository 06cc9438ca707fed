//go:build race

package rma

// raceEnabled: sync.Pool drops entries at random then, so that nothing can be
// said about allocations.
const raceEnabled = true
