// Package sim is a fabric link through a network that exists in memory only,
// with faults that are drawn from a seed: delay, full queues, failed requests,
// death with and without notice, writes that become visible piece by piece,
// reads overtaken by later writes. Protocols are tested on it; it is also the
// provider of the documentation's examples.
//
// It keeps to the contract of package fabric as strictly as a device does:
// local keys and bounds are checked, source memory is read as late as the
// contract allows (so that reusing it early shows), and every liberty that the
// contract leaves to links is taken when Options ask for it.
//
// # Time
//
// The network has a clock of steps: every Link.Poll of any of its links is one
// step, and Network.Step makes steps by hand. With no delay configured a request
// is carried out inside Post, unless Caps.TargetProgress is set: then, as on
// TCP, inside the target's Poll. Delayed requests advance when any side polls.
// While there is something that polling would advance, Arm returns false.
//
// PeerTimeout is measured by real time (and thus by synctest's fake one), or by
// steps when Options.StepTime is set.
//
// One goroutine that uses all links in turn sees the same history for the same
// seed. Links may as well be used from several goroutines, each link by its
// owner; the history then depends on the scheduler.
//
// Where a plain write wakes a sleeper (Caps.WakesOnWrite), it wakes one that
// was armed before. A write that came between the last look at the memory and
// Arm is not an event: look once more after Arm.
//
// # Imports
//
// fabric, fabric/internal/softlink, internal/offheap.
//
// # Invariants
//
// One mutex guards a network; nothing blocks while holding it. A request is in
// its endpoint's ring until it is retired, in order, exactly once. No memory is
// touched whose key was not checked in the same critical section.
//
// # Files
//
//	options.go   Options, caps of the links that it can pose as
//	network.go   Network: links, steps, which endpoints have work
//	link.go      Link: poll, arm, close
//	region.go    registered memory
//	endpoint.go  Endpoint: its address, connect, post, close
//	exec.go      carrying out requests
//	faults.go    faults by hand: FailAt, Kill, KillAt, Freeze
//
// Tests: the conformance suite over many Options (conformance_test.go), the
// liberties it takes (sim_test.go), the faults by hand (faults_test.go).
package sim
