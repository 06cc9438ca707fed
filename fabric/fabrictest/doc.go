// Package fabrictest is the conformance suite of package fabric: the promises that a
// protocol may rely on, tested in the same way on every link.
//
//	func TestConformance(t *testing.T) {
//		fabrictest.Run(t, fabrictest.Factory{Open: openTwoLinks})
//	}
//
// Every test opens two links in this process, connects endpoints of them and plays both
// sides. Payload bytes depend on their position, buffers lie between canaries, every wait
// has a deadline. The cases themselves are tested, too: mutant_test.go runs them on about a
// hundred links with deliberate faults, and every case must detect at least one.
//
// It is for the tests of this module only, and imports fabric, internal/testutil, internal/cpu.
//
// # Files
//
//	fabrictest.go  Factory, Run, the list of cases
//	rig.go         two links and what cases do with them
//	data.go        sizes, alignment, gather, scatter, inline, notification
//	atomics.go     fetch-add, compare-swap, contention
//	order.go       what is visible when
//	access.go      keys, bounds and rights, remote and local
//	queue.go       full queues, every request exactly once, many endpoints
//	wake.go        sleeping on FD
//	gone.go        close, death, what is left of outstanding requests
//	connect.go     addresses and deadlines
//	alloc.go       no allocation on the small path
//	model.go       random scripts against plain slices
package fabrictest
