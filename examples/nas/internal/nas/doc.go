// Package nas holds what the NAS Parallel Benchmarks under examples/nas have in common:
// the start of the job, problem classes, random numbers, communication with its time, and
// the report.
//
// The benchmarks are written from their specification: D. Bailey et al., "The NAS Parallel
// Benchmarks", report RNR-94-007, NASA Ames, 1994; classes and verification values from NPB 3.
// As there, the time does not include the initialization, and a first iteration that is not
// timed touches all memory and makes all connections.
//
//	job.go     Main, Kernel, Run
//	class.go   Class
//	random.go  Random: the linear congruential generator
//	comm.go    Comm: collectives and the clock of communication
//	report.go  Result, and how it is printed
package nas
