// Package overlap measures communication while the processors compute, through package
// rma, as applications do both: how much of a transfer is hidden behind computation
// (Overlap), how soon a rank that computes reacts (Reactivity), and what many goroutines
// that wait or send cost one another (Threads).
//
// # Definitions
//
// Overlap measures three series of one operation, of medians over iterations, each
// iteration as long as the slower rank takes from a common start:
//
//   - comm: the operation alone;
//   - compute: the computation alone, on those ranks that compute;
//   - total: the operation started, the computation, the wait for the operation.
//
// The computation is a fixed amount of arithmetic, calibrated on an idle processor, not a
// loop until a time is over: what the transfer takes from the processor counts. Derived are
//
//   - ratio: total / (comm + compute), the literature's; 1 is no overlap, less is better,
//     max(comm, compute) / (comm + compute) is perfect;
//   - imb: 100 (comm + compute - total) / min(comm, compute), as Intel's IMB-NBC has it;
//   - bound: the least ratio that is possible where processors copy: at least
//     (compute of all ranks + copies) / processors passes, copies being those that the link
//     makes of the data (shm 1, tcp 2, verbs 0), each as long as a copy of this size takes
//     here.
//
// Reactivity measures the latency of single operations on a target that computes on k
// goroutines a processor, none of which ever waits: p50, p99 and maximum.
//
// Threads measures a ping-pong of put-with-signal between two goroutines beside w others of
// the same rank, which wait for signals or messages that do not come, or send messages all
// the time.
//
// # Files
//
//	overlap.go, reactivity.go, threads.go  the measurements
//	pair.go    what the ranks tell one another
//	work.go    computation of known length
//	format.go  table and JSON lines
package overlap
