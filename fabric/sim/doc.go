// Package sim is a fabric link over a simulated network in memory, with faults that are
// drawn from a seed: delay, full queues, failed requests, death with and without notice,
// writes that become visible piece by piece, reads overtaken by later writes. Protocols are
// tested on it, and the examples of the documentation use it.
//
// The package is a part of the engine below package rma. Applications use rma; the exported
// names may change in any release.
//
// It implements the contract of package fabric as strictly as a device does: local keys and
// bounds are checked, source memory is read as late as the contract allows (so that early
// reuse is detected), and Options enable every liberty that the contract grants to links.
//
// # Time
//
// The network has a clock of steps: every Link.Poll of any of its links is one step, and
// Network.Step advances it explicitly. Without configured delay a request is executed inside
// Post, unless Caps.TargetProgress is set: then, as on TCP, inside the target's Poll.
// Delayed requests advance when any side polls. While polling would advance a request, Arm
// returns false.
//
// PeerTimeout is measured in real time (and thus in synctest's fake time), or in steps if
// Options.StepTime is set.
//
// A goroutine that uses all links in turn sees the same history for the same seed. Several
// goroutines may use the links, each link by its owner; the history then depends on the
// scheduler.
//
// Where a plain write wakes a sleeper (Caps.WakesOnWrite), it wakes one that was armed
// before. A write between the last look at the memory and Arm is not an event: look once
// more after Arm.
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
//	faults.go    faults by hand: FailAt, Kill, KillAt, Fail, Freeze
//
// Tests: the conformance suite over many Options (conformance_test.go), the
// liberties it takes (sim_test.go), the faults by hand (faults_test.go).
package sim
