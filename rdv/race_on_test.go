//go:build race

package rdv

// raceEnabled: the detector allocates, so that nothing can be said about
// allocations.
const raceEnabled = true
