//go:build !race

package rdv

const raceEnabled = false
