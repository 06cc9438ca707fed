//go:build race

package logp

// raceEnabled: everything takes ten times as long, so property tests look at fewer cases.
const raceEnabled = true
