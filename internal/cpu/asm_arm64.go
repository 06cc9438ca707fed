package cpu

// Ticks reads the virtual counter. See the amd64 version.
//
//go:noescape
func Ticks() int64

// Pause tells the processor that this is a spin loop.
//
//go:noescape
func Pause()
