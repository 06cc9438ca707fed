package cpu

// Ticks reads the processor's time-stamp counter. The difference of two reads
// on an invariant-TSC machine is proportional to time; see [NsPerTick]. Reads
// are not serialised against the instructions around them.
//
//go:noescape
func Ticks() int64

// Pause marks a spin loop for the processor (a few to 140 cycles).
//
//go:noescape
func Pause()
