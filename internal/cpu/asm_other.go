//go:build !amd64 && !arm64

package cpu

import "time"

var epoch = time.Now()

// Ticks returns nanoseconds: there is no portable cycle counter.
func Ticks() int64 { return int64(time.Since(epoch)) }

// Pause does nothing: there is no such instruction.
func Pause() {}
