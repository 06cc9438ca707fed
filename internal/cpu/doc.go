// Package cpu reads the cycle counter and implements bounded spinning.
//
// [Ticks] is for timing loops: on kernels where reading the clock is a system
// call (User-Mode Linux: 13 µs) time.Now would measure itself. [Spinner] is the
// first two steps of every wait in the project: a bounded spin, then giving
// the processor away; the third, sleeping on an event, is the caller's. How long they last is a
// [SpinPolicy], chosen by how many ranks there are to each processor that this one may
// use: a wait that no processor can end is not spun away.
//
//	ticks.go, asm_*     the cycle counter, pause
//	spin.go             Spinner; yield_*.go the system's way to give way
//	spin_policy.go        SpinPolicy, and what fits a load
//	set.go, allowed_*   sets of processors, the one of this process
//
// It imports nothing of the project.
package cpu
