// Package fabric is the seam between the protocols and the links that carry
// them: what one side of a connection can do to the other side's memory.
//
// The package is a part of the engine below package rma, and links are added to the
// engine inside this module only (internal/links). Applications use rma, which gives
// fabric's errors names of its own; what is exported here may change in any release.
//
// A [Link] is one opened transport: an RDMA device (fabric/ibv), the shared
// memory of this host (fabric/shm), TCP sockets (fabric/tcp) or a simulated
// network with faults (fabric/sim). An [Endpoint] is one connection of a link
// to one peer. Work is handed over as a list of work requests ([WR]) in one
// [Endpoint.Post]; what became of it comes back from [Link.Poll] as
// [Completion] values. The protocols above (eager, gather, scatter, rdv) are
// written once, against this package, and behave alike on every link; where
// links differ in what they promise, [Caps] says so.
//
// # Contract
//
//   - Addresses are target virtual addresses, guarded by a remote key, as in
//     InfiniBand verbs. A request whose key, bounds or rights are wrong
//     completes with [StatusRemoteAccess] and touches no byte of the target.
//   - A read or write of zero bytes touches nothing, so nobody looks at its
//     address and key, valid or not: it succeeds, and notifies if it carries
//     [FlagNotify]. That is InfiniBand's rule (C9-88), and a device's to keep.
//   - A signalled request completes exactly once. An unsignalled one completes
//     at most once and only when it failed; that it succeeded is known from the
//     completion of a later signalled request of the same endpoint.
//   - A successful completion of a write or an atomic means that the data is
//     placed in the target's memory, not only that the source may be reused.
//     A successful read or atomic means that the local pieces are filled.
//   - Requests of one endpoint start in the order they were posted. Writes and
//     atomics become visible at the target in that order, and a read sees what
//     writes posted before it wrote. A write posted after a read may overtake
//     the read's fetch unless it carries [FlagFence].
//   - The first failed request moves its endpoint to the error state: requests
//     behind it complete with [StatusFlushed] and [Endpoint.Post] returns
//     [ErrDown]. Other endpoints of the link are not affected. There is no
//     repair: close the endpoint and connect a new one.
//   - A full queue is a value: Post takes a prefix of the list and says how
//     long it is.
//   - Work requests and their SGE lists belong to the caller again when Post
//     returns; the memory that the SGEs name belongs to the link until the
//     completion.
//
// # Concurrency
//
// Poll, Post, Arm, Disarm and Endpoint.Close of one link and of its endpoints
// are for one goroutine at a time (the owner, usually the progress engine; the
// owner may change hands with proper synchronisation). Register, Alloc,
// Region.Close, NewEndpoint and Connect may be called from any goroutine while
// the owner polls.
//
// # Files
//
//	fabric.go      Link, Endpoint, Region, Caps
//	direct.go      Direct: small requests where the peer's memory is mapped
//	wr.go          WR, SGE, Op, Flags, Completion
//	status.go      Status and the errors it maps to
//	key.go         RemoteKey, the marshalled name of remote memory
//	sge_unsafe.go  the only place where an SGE becomes a byte slice
//
// The conformance suite that every link passes is fabric/fabrictest.
package fabric
