//go:build race

package testutil

// Race says that the race detector is on: everything takes ten times as long, sync.Pool
// drops items at random, and stack buffers of system calls escape.
const Race = true
