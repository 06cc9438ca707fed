// Package rma gives the ranks of a job one-sided access to each other's
// memory: put, get and atomics that need no call of the target.
//
//	eng, err := rma.Open(ctx, nil)
//	defer eng.Close()
//	mem, err := eng.Alloc(1 << 20)
//	keys, err := rma.AllGatherKeys(ctx, eng, mem)
//	err = eng.Peer(1).Put(keys[1].At(0), mem.Slice(0, 64)).Wait(ctx)
//	err = eng.Barrier(ctx)
//
// [Open] finds its job in the environment (start programs with rmarun); alone,
// a process is rank 0 of 1. Ranks on one host talk through shared memory, others
// by RDMA where there is a device that reaches both, else over TCP; RMA_FABRIC or
// [Config.Fabric] forces one. What a program sees is the same on all of them.
//
// # The nouns
//
//   - A job is a fixed set of processes that start together, its ranks, numbered
//     from 0. An [Engine] is one process's membership.
//   - A [Region] is memory that others may reach: new, from [Engine.Alloc], or the
//     application's own, by [Engine.Register]. A [Buffer] is a piece of one, on
//     this side of an operation.
//   - A [Key] is what others need to reach a region; it is a small value that may
//     be sent like any other, or be exchanged by all with [AllGatherKeys]. With an
//     offset it is a [Remote], the other side of an operation. A [Window] is memory
//     of all ranks at once, whose keys are exchanged already.
//   - A [Peer] is a rank as a target. There is no connecting: the engine does
//     it at the first operation with a peer, in the background on both sides.
//   - A [Request] is an operation under way. Start many, then wait: their latencies
//     overlap. That is most of what there is to know about being fast.
//
// # How the other side learns of it
//
// The target of a put does nothing, and so knows nothing. From the cheapest to
// the dearest way to tell it:
//
//   - [Peer.PutSignal] changes a word of the target after the data is there, and
//     [Engine.WaitSignal] waits for that word: for neighbours in an inner loop.
//   - A message carries its data, finds a buffer, and can be chosen by tag:
//     for work whose place only the receiver knows, and for questions and answers.
//   - [Engine.Barrier] says that everybody has come so far: for phases. It knows
//     nothing of operations; wait for those first.
//
// And often nobody needs to be told: counters, locks and tickets live in a word
// that all change by atomics, and tables are read where they lie by those who need them.
//
// # Completion
//
// Operations do not block: they return a request. When its Wait returns nil, a
// put or an atomic has taken place in the target's memory, and what a get
// fetched is in the local buffer. Until then the local buffer belongs to the
// engine. Operations of one goroutine to one peer start in the order of the
// calls; puts and atomics become visible at the target in that order. A later
// put may overtake the fetch of an earlier get: wait for the get first.
//
// # Messages
//
// [Peer.Send] and [Peer.Recv], and their forms with tags, move messages of any
// size in the order of the calls. What has gathered for a peer while its link was
// busy, and what a [Batch] holds, is planned as a whole: each message goes through
// the peer's ring, alone or with others in one write, or is announced and fetched
// by the peer, whichever the cost model says is soonest for all. A send is
// complete when its memory may be used again, and waits where the receiver lags
// behind. No step of this needs a call by either application.
//
// Receives take from one peer ([Peer.Recv]) or from any ([Engine.Recv]); a probe
// ([Peer.Probe]) looks without taking; Cancel withdraws what has not matched. A
// handler ([Engine.Handle]) gets every message of a tag, in the progress engine or
// on goroutines of its own, and a [Receiver] is for libraries that choose the memory
// of each message as it comes. [Event] is how a goroutine waits for what these find
// out. All these have one order: a message goes to the first that asks for it.
//
// # Failure
//
// A peer that dies fails the operations under way to it, and later ones, with a
// [*PeerError] that wraps [ErrPeerGone], within Config.PeerTimeout or as soon as
// the job's wire-up server tells; on RDMA, operations under way while a process is
// being killed may fail with [ErrRemoteAccess] just before. One that is there but makes no
// progress, because it is stopped, starved or stuck, fails them with [ErrPeerHung] after
// Config.HangTimeout, alike on every link; a peer that goes on before has done no
// harm. [Engine.Watch] tells both to who has no operation under way. Other peers are not affected. An operation that the
// target refuses (a stale key) takes the connection with that peer down: those
// behind it fail with [ErrFlushed], until [Peer.Reset] makes a new one.
//
// # Memory
//
// Per peer that there have been operations with, the engine holds one connection
// with Config.Depth requests; what is
// posted beyond waits in a list of the requests themselves. Regions live
// outside the Go heap.
//
// # Configuration and observation
//
// Nothing needs to be set. Each field of [Config] is also a variable and a line in
// a settings file, which override it, so that a job can be run in another way without a new
// binary: docs/configuration.md. [Engine.Stats] and [Peer.Stats] count; the module
// metrics offers that to Prometheus; [Config.Logger] hears what is rare and worth
// knowing; execution traces show who waited for what: docs/observability.md.
//
// # Concurrency
//
// All methods may be called from any goroutine, except that one goroutine at a
// time may wait for a request.
//
// # Files
//
//	config.go   Config; effective.go what it becomes with file and environment
//	engine.go   Engine: open, close, and what its links carry: one-sided operations
//	            (internal/initiator), messages (package hub), heartbeats; setup.go links and
//	            peers, by internal/bringup; heartbeat.go whether peers make progress;
//	            watch.go who is told
//	region.go   Region, Buffer, Access, Key, Remote; view_unsafe.go memory as numbers
//	peer.go     Peer: puts and gets, and the end of its connection; vector.go, strided.go
//	            transfers of many pieces; connection.go a connection's effects;
//	            reset.go connections made anew
//	atomic.go   atomics; accumulate.go Accumulate
//	signal.go   data with a flag, and waiting for it
//	flush.go    Flush, Fence
//	message.go  Send and Recv, from any peer as well; batch.go Batch; conversation.go the
//	            channels that carry them; all by internal/message/hub
//	handle.go   Handler; receiver.go Receiver; event.go Event
//	request.go  Request, AtomicRequest, WaitAll, WaitAny, callbacks
//	barrier.go  Barrier; window.go Window; collective.go calls of all ranks, AllGatherKeys
//	errors.go   errors; stats.go counters
//
// It imports every floor below it. Tests over shm and tcp in one process are
// beside the code, over several processes in examples/hello.
package rma
