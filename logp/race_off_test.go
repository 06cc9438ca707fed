//go:build !race

package logp

const raceEnabled = false
