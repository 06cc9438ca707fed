// Package fabric is the interface between the protocols and the links: the operations of one
// side of a connection on the other side's memory.
//
// The package is a part of the engine below package rma, and new links are added inside this
// module only (internal/links). Applications use rma, which defines its own names for
// fabric's errors; the exported names may change in any release.
//
// A [Link] is one opened transport: an RDMA device (fabric/ibv), the shared memory of this
// host (fabric/shm), TCP sockets (fabric/tcp) or a simulated network with faults
// (fabric/sim). An [Endpoint] is one connection of a link to one peer. [Endpoint.Post] takes
// a list of work requests ([WR]), and [Link.Poll] returns their [Completion] values. The
// protocols above (eager, gather, scatter, rdv) are written once, against this package, and
// behave alike on every link; [Caps] describes the differences between links.
//
// # Contract
//
//   - Addresses are target virtual addresses, guarded by a remote key, as in
//     InfiniBand verbs. A request whose key, bounds or rights are wrong
//     completes with [StatusRemoteAccess] and touches no byte of the target. (Of a request
//     with more pieces than Caps.MaxSGE, those before the refused one may have been executed.)
//   - A read or write of zero bytes accesses nothing, so its address and key are not
//     checked: it succeeds, and notifies if it carries [FlagNotify]. This is InfiniBand's
//     rule (C9-88), and devices follow it.
//   - A signalled request completes exactly once. An unsignalled request completes only if
//     it failed, and at most once; its success follows from the completion of a later
//     signalled request of the same endpoint.
//   - A successful completion of a write or an atomic means that the data is placed in the
//     target's memory, not only that the source may be reused. A successful read or atomic
//     means that the local buffers are filled.
//   - Requests of one endpoint start in the order in which they were posted. Writes and
//     atomics become visible at the target in that order, and a read returns the data of
//     writes posted before it. A write posted after a read may overtake the read unless it
//     carries [FlagFence].
//   - The loss of a connection fails the requests of its endpoint, unless the endpoint continues on
//     another connection ([Resumer]).
//   - An atomic that was executed, but whose result was lost with a connection of a Resumer, fails alone, with
//     [StatusLostResult], and one that another link that carries on the endpoint cannot execute ([Carried]) with
//     [StatusApart]; only these completions are not the end of their endpoint.
//   - Any other failed request, the first, moves its endpoint to the error state: requests behind it
//     complete with [StatusFlushed] and [Endpoint.Post] returns [ErrDown]. Other endpoints
//     of the link are not affected. The endpoint cannot be repaired: close it and connect a
//     new one.
//   - A full queue is not an error: Post takes a prefix of the list and returns its length.
//   - Work requests and their SGE lists belong to the caller again when Post returns. The
//     memory that the SGEs name belongs to the link until the completion.
//
// # Concurrency
//
// Poll, Post, Arm, Disarm and Endpoint.Close of one link and of its endpoints are for one
// goroutine at a time, the owner: usually the progress engine. Ownership may be transferred
// with proper synchronisation. Register, Alloc, Region.Close, NewEndpoint and Connect may be
// called from any goroutine while the owner polls.
//
// # Files
//
//	fabric.go      Link, Endpoint, Region, Caps; what some have besides: Direct, CopyTuner,
//	               Neighbour, Resumer, Rejoiner
//	wr.go          WR, SGE, Op, Flags, Completion; RemoteKey, the marshalled name of
//	               remote memory
//	status.go      Status and the errors it maps to
//	sge_unsafe.go  the only place where an SGE becomes a byte slice
//
// The conformance suite that every link passes is fabric/fabrictest.
package fabric
