// Package testutil holds the common helpers of the project's tests: payloads whose bytes
// show their origin, buffers with canaries, deadlines, leak checks, a second process, and
// the rule for tests that need an RDMA device.
//
// For tests only; tests of every package may import it. It imports offheap and
// cpu of this module, nothing else.
//
//	payload.go      Fill, Verify: bytes that depend on (seed, offset)
//	wait.go         Eventually, Within, Context: waits that end
//	leak.go         Main, NoLeaks: goroutines, descriptors, off-heap memory
//	child.go        Child, Alone: the test binary run again as another process
//	stop_unix.go    Stop, Continue: of a child
//	hosts_linux.go  TwoHosts: network namespaces joined by a wire; IP
//	rdma.go         RequireRDMA: skip with a reason, or fail; EachLink: a test on all links
//	memory.go       Scratch, off-heap memory for one test; Guarded, a buffer between two
//	                canaries; Size, of a type
//	race_*.go       Race
//	word_unsafe.go  Load64, Store64: words that a peer writes
package testutil
