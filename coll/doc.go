// Package coll provides collective operations: a team of ranks combines or exchanges data
// by calls that all its ranks make.
//
//	t, err := coll.World(eng) // on every rank
//	err = coll.Allreduce(ctx, t, mine, sums, coll.Sum)
//
// # Operations
//
// The operations are generic functions over slices: Barrier, Bcast, Reduce, Allreduce,
// ReduceScatter, Gather, Scatter, Allgather, Alltoall, Scan and Exscan. Those with a v at
// the end of their names take a slice for each rank, of different lengths. Elements are of
// any type of 1 to 65535 bytes without pointers; reductions are Sum, Prod, Min, Max, And,
// Or, Xor, and functions of the application by Func and FuncInOrder.
//
// Block r of a slice is its r-th part, if the slice is divided into as many parts of equal
// length as the team has ranks. Lengths are counted in elements and, unless a function says
// otherwise, are equal on all ranks. send and recv may be the same memory where a function
// says so, and must not overlap otherwise. Memory that does not fit is refused with
// ErrInvalid.
//
// Each operation has a form that begins with Start and returns a Request: the engine
// performs the operation while the application computes, without further calls. Until the
// request is complete, the operation's memory belongs to it. Up to 1024 operations of a team
// may be in flight (ErrBusy).
// Forms that begin with Prepare return a Persistent: an operation that is planned once and
// started any number of times, without allocation.
//
// # Matching
//
// All ranks of a team start the same operations in the same order. Operations of different
// teams, and of different tags of one team (Team.Tag), have no order among each other, and
// never wait for each other. Each message names the call that it belongs to. If that differs
// from the receiver's call, in the operation, the number or type of elements, the reduction
// or the root, the operations of the team fail on all ranks with a *MismatchError that names
// both ranks and calls. The calls of two ranks are compared only when one of the two receives
// a message of the other; with RMA_COLL_CHECK=1 each rank also sends its calls to the next
// one of the team, so that all differences are found.
//
// # Failures
//
// The team is revoked on all ranks if an operation needs a rank that is lost, if calls do not
// match, or if an operation is given up by Request.Cancel or by the end of the context of a
// blocking call. Its operations, in flight and later, then fail with an error that wraps
// ErrRevoked and, for a rank that is lost or has given up, a *rma.PeerError with its number
// in the job. The contents of their memory are undefined. If another rank was stopped in the
// middle of a write to that memory, or does not take what was sent from it, the error contains
// an *InUseError: the memory may be used when its Wait has returned nil. Team.Shrink makes a new team of the ranks that live.
//
// Messages of operations wait behind those that the application sends: while no receive takes
// more than 1 MiB of messages of a rank, operations that need a message of that rank may wait as well.
//
// # Concurrency
//
// All functions and methods may be called from any goroutine, except that only one goroutine
// at a time may wait for a request. If several goroutines of a rank start operations of one
// team and tag, they must order them as the other ranks do. Goroutines that use different
// tags need no such order.
//
// # Stability
//
// The package is meant to be imported by applications. Its interface may change before
// version 1.
//
// # Files
//
//	call.go       the operations, as applications call them; operator.go reductions
//	team.go       Team: members, order of operations, revocation, Split
//	create.go     New: members exchange the numbers by which they know the team; shrink.go Shrink
//	algorithm.go  the algorithms; messages.go makes their schedules; choose.go which one is
//	              used, by predicted time or by RMA_COLL_ALGORITHM
//	predict.go    predicted times: schedules of all ranks (simulate.go) with the costs of
//	              messages and local work (figures.go)
//	circulant.go  rounds of a broadcast or reduction on a circulant graph
//	hosts.go      hosts: which ranks are on one host, and algorithms that cross between hosts once
//	check.go      RMA_COLL_CHECK: ranks tell each other about their calls
//	flags.go      board: small operations through memory that the ranks of a host map;
//	              direct.go: stores to other boards; fastpath.go: calls that are over at once
//	area.go       shared memory behind a board, by which shared.go passes data; single.go:
//	              single copies from and to the memory of other ranks' calls; held.go: what
//	              becomes of that memory if a call fails
//	schedule.go   schedule: steps with dependencies, independent of addresses
//	run.go        operation, Request: a schedule that is performed
//	keys.go       AllgatherKeys; window.go: Window, memory of the ranks of a team
//	persistent.go Persistent: an operation that is started again and again
//	service.go    messages of an engine's teams; loss of ranks
//	header.go     messages of operations; control.go messages about teams
//
// It imports the root package, logp, internal/cpu, internal/message, internal/offheap, internal/onesided, internal/progress and internal/settings.
package coll
