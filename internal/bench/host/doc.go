// Package host examines the machine that measurements run on: its equipment ([Collect], for
// `rmabench info`) and obstacles ([Diagnose], for `rmabench doctor`).
//
// It reads files below a root directory, and queries the kernel through the functions of a
// [System]; tests replace both. It imports the same packages as other packages of the top
// floor. It does not change the machine; [CheckCMA] starts one short-lived child process.
//
// # Files
//
//	system.go       System: all queries of the machine
//	info.go         Info and its text form
//	doctor.go       Finding and the list of checks
//	checks.go       the checks
//	placement.go    the check of NUMA nodes and bindings
//	cma.go          the transfer between two processes
//	real.go         the real System
package host
