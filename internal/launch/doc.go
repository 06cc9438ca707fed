// Package launch starts the ranks of a job as processes of this host, and ensures that they
// end together.
//
// [Run] runs the wire-up server (internal/wireup) inside the launcher, starts N processes
// with the job in their environment, forwards signals to them and returns when all have
// ended. The first rank that fails decides the exit code. The others get SIGTERM and, after
// a grace time, SIGKILL; with Spec.KeepGoing they continue, and the wire-up server reports
// the rank's end to them. A rank that is stopped, or that others report to make no progress,
// for Spec.HangTimeout has failed, too.
//
// # Nothing survives
//
// Every rank leads a process group of its own: its child processes are killed with it. If
// the launcher itself is killed, the kernel kills the ranks (PDEATHSIG), and a guard, a
// small shell that holds the other end of a pipe, kills their groups (and, while ranks are
// being started, every process with the name of the job in its environment) and removes the
// socket's directory. Without /bin/sh there is no guard, and grandchildren of a killed
// launcher survive.
//
// # Files
//
//	launch.go       Spec, Run and its event loop
//	bind.go         the processors of the ranks
//	rank.go         one process: start, wait, signal; its environment
//	hang.go         ranks that make no progress
//	guard.go        the guard, which kills the ranks of a killed launcher
//	output.go       tagged lines
//	errors.go       how a job ends
//	sys_linux.go    process groups, PDEATHSIG; sys_unix.go, sys_group.go, sys_none.go other systems
//
// It may import internal/jobenv and internal/wireup. Real-process tests live in launch_test.go and
// in cmd/rmarun.
package launch
