// Package cpu reads the cycle counter and waits without starving others.
//
// [Ticks] is for timing loops: on kernels where reading the clock is a system
// call (User-Mode Linux: 13 µs) time.Now would measure itself. [Spinner] is the
// first two steps of every wait in the project: a bounded spin, then giving
// the processor away; the third, sleeping on an event, is the caller's.
package cpu
