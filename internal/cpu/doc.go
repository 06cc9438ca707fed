// Package cpu reads the cycle counter and implements bounded spinning.
//
// [Ticks] is for timing loops: on kernels where reading the clock is a system call
// (User-Mode Linux: 13 µs), time.Now would dominate the measurement. [Spinner] implements
// the first two steps of every wait in the project: a bounded spin, then yields; the third,
// sleeping on an event, is left to the caller. A [SpinPolicy] gives the length of these
// steps. It depends on the number of ranks for each processor that this one may use: a wait
// for a peer that has no processor to run on is not spun.
//
//	ticks.go, asm_*     the cycle counter, pause
//	spin.go             Spinner; yield_*.go the system's yield
//	spin_policy.go      SpinPolicy, and the choice by load
//	contention.go       Contention: other threads that want the processors
//	set.go, allowed_*   sets of processors, and this process's
//
// It imports nothing of the project.
package cpu
