//go:build !race

package testutil

// Race says that the race detector is on.
const Race = false
