package cpu

// Ticks reads the virtual counter. See the amd64 version.
//
//go:noescape
func Ticks() int64

// Pause marks a spin loop for the processor.
//
//go:noescape
func Pause()
