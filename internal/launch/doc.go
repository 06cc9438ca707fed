// Package launch starts the ranks of a job as processes of this host, and sees
// to it that they end together.
//
// [Run] serves the wire-up (internal/wireup) inside the launcher, starts N
// processes with the job in their environment, forwards signals to them and
// returns when all have ended. The first rank that fails decides the exit
// code; the others get SIGTERM and, after a grace time, SIGKILL, unless they are to
// go on (Spec.KeepGoing): they learn from the wire-up server who is gone. A rank that is stopped, or
// that others report to make no progress, for Spec.HangTimeout has failed, too.
//
// # Nothing survives
//
// Every rank leads a process group of its own: what it has started is killed
// with it. Should the launcher itself be killed, the kernel kills the ranks
// (PDEATHSIG), and a guard, a tiny shell that holds the other end of a pipe,
// kills their groups (and, while ranks are being started, whatever carries the
// name of the job in its environment) and removes the socket's directory. Without /bin/sh there
// is no guard, and grandchildren of a killed launcher live on.
//
// # Files
//
//	launch.go       Spec, Run and its event loop
//	rank.go         one process: start, wait, signal; its environment
//	hang.go         ranks that make no progress
//	guard.go        what kills the ranks of a killed launcher
//	output.go       tagged lines
//	errors.go       how a job ends
//	sys_linux.go    process groups, PDEATHSIG; sys_other.go what is left elsewhere
//
// It may import internal/wireup. Real-process tests live in launch_test.go and
// in cmd/rmarun.
package launch
