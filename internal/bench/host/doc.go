// Package host looks at the machine that measurements run on: what is there
// ([Collect], for `rmabench info`) and what is in the way ([Diagnose], for
// `rmabench doctor`).
//
// It reads files below a root that tests replace, and asks the kernel through
// the functions of a [System] that tests replace as well. It imports what the
// other top-floor packages may. Nothing here changes the machine; [CheckCMA]
// starts one short-lived child.
//
// # Files
//
//	system.go       System: everything that is asked of the machine
//	info.go         Info and its text form
//	doctor.go       Finding and the list of checks
//	checks.go       the checks
//	cma.go          the transfer between two processes
//	real.go         the real System
package host
