// Package overlap measures communication during computation, through package rma, as in
// applications: how much of a transfer is hidden behind computation (Overlap), how fast a
// computing rank responds (Reactivity), how waiting or sending goroutines slow one
// another down (Threads), what streams cost small operations beside them (Concurrent), and
// what busy processes beside them cost (Load).
//
// # Definitions
//
// Overlap measures three series of one operation and takes the median over iterations. An
// iteration ends when the slower rank ends it, after a common start:
//
//   - comm: the operation alone;
//   - compute: the computation alone, on the computing ranks;
//   - total: start of the operation, the computation, wait for the operation.
//
// The computation is a fixed amount of arithmetic, calibrated on an idle processor, not a
// loop that ends after a given time, so that processor time used by the transfer counts.
// Derived figures:
//   - ratio: total / (comm + compute), as in the literature; 1 is no overlap, less is better,
//     max(comm, compute) / (comm + compute) is perfect;
//   - imb: 100 (comm + compute - total) / min(comm, compute), as in Intel's IMB-NBC;
//   - bound: the least possible ratio if processors copy the data: at least
//     (compute of all ranks + copies) / processors elapses. The copies are those of the link
//     (shm 1, tcp 2, verbs 0); each takes as long as a copy of this size on this machine.
//
// Reactivity measures the latency of single operations on a target that computes on k
// goroutines for each processor, none of which ever blocks: p50, p99 and maximum. Rank 0 may
// sleep for a gap before each operation, which is not part of the latency. Slowed is how much less
// work the goroutines do meanwhile than while rank 0 sleeps, in percent.
//
// Threads measures a ping-pong of put-with-signal between two goroutines, with w other
// goroutines on the same rank, which wait for signals or messages that never arrive, or send
// messages all the time.
//
// Concurrent measures the same operations beside streams of rank 0, each of which has one message,
// put or get under way at any time, and the bandwidth of all streams meanwhile.
//
// Load measures a ping-pong of put-with-signal, barriers and gets between two ranks beside
// threads of another process that compute, in turn with different wait policies: the mean,
// which is what a program gets, p50, p99 and maximum.
//
// # Files
//
//	overlap.go, reactivity.go, threads.go, concurrent.go, load.go
//	           the measurements
//	pair.go    exchange between the two ranks
//	work.go    computation of known duration
//	format.go  table and JSON lines
package overlap
