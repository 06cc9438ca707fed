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
// [Open] finds its job in the environment (start programs with rmarun); without a
// launcher, the process is rank 0 of 1. Ranks on one host communicate through shared
// memory, ranks on different hosts by RDMA if a device reaches both, else over TCP;
// RMA_FABRIC or [Config.Fabric] forces a link. The semantics are the same on each link.
//
// # Types
//
//   - A job is a fixed set of processes that start together. They are its ranks, numbered
//     from 0. An [Engine] is one process's membership in a job.
//   - A [Region] is memory that peers may access: new memory from [Engine.Alloc], or
//     memory of the application, by [Engine.Register]. A [Buffer] is a part of a
//     region, the local side of an operation.
//   - A [Key] is what peers need to access a region. It is a small value that can be
//     sent like any other; [AllGatherKeys] exchanges the keys of all ranks. A key with
//     an offset is a [Remote], the remote side of an operation. A [Window] is a region
//     on each rank, created together with the exchange of the keys; an [Array] views a
//     window as elements of one type.
//   - A [Peer] is a rank as the target of operations. There is no call to connect: the
//     first operation with a peer makes the engines on both sides connect in the
//     background.
//   - A [Request] is an operation in flight. Start several operations, then wait: their
//     latencies overlap.
//
// # Notifying the target
//
// The target of a put makes no call and is not notified of it. There are three ways to
// notify the target, from the cheapest to the most expensive:
//
//   - [Peer.PutSignal] changes a word of the target after the data has been placed, and
//     [Engine.WaitSignal] waits for that word. Use it between neighbours in an inner loop.
//   - A message carries its data, is matched by tag, and is placed in a buffer that the
//     receiver chooses. Use it if only the receiver knows where the data belongs, and
//     for requests with answers.
//   - [Engine.Barrier] returns when all ranks have called it. Use it between phases. It does
//     not wait for operations; wait for those first.
//
// Many programs need no notification: counters, locks and tickets are words that all ranks
// change by atomics, and a table can be read by gets without its owner.
//
// # Completion
//
// Operations do not block: they return a request. When its Wait returns nil, a
// put or an atomic has taken place in the target's memory, and the data of a get
// is in the local buffer. Until then the local buffer belongs to the
// engine. Operations of one goroutine to one peer start in the order of the
// calls; puts and atomics become visible at the target in that order. A later
// put may overtake an earlier get: wait for the get first.
//
// # Messages
//
// [Peer.Send] and [Peer.Recv], and their forms with tags, transfer messages of any
// size in the order of the calls. The engine plans the messages that have queued up for a
// peer while its link was busy, and those of a [Batch], as a whole: the cost model decides
// which messages travel through the peer's ring, alone or with others in one write, and
// which are announced and fetched by the peer. A send is complete when its memory may
// be reused; it waits while the receiver has no room. The engines perform all steps of a
// transfer without further calls of the applications.
//
// A receive takes messages from one peer ([Peer.Recv]) or from any ([Engine.Recv]); the
// receives of a [RecvBatch] are posted and waited for together. A probe ([Peer.Probe])
// reports a message without receiving it; Cancel withdraws a receive that has not matched.
// A handler ([Engine.Handle]) is called for every message with a tag, by the progress
// engine or by its own goroutines; one of [HandleMany] gets all messages that have arrived
// together in one call. A [Receiver] is intended for libraries that choose the memory of
// each message as it arrives. An [Event] lets a goroutine wait for a result of a handler or
// receiver. Receives, probes, handlers and receivers share one order: a message goes to the
// one that was posted first among those that match.
//
// # Failure
//
// If a peer dies, operations with it fail with a [*PeerError] that wraps [ErrPeerGone],
// within Config.PeerTimeout or as soon as the job's wire-up server reports the death. On
// RDMA, operations in flight while a process is being killed may fail with
// [ErrRemoteAccess] just before. If a peer's process exists but makes no progress, because it is
// stopped, starved or stuck, operations fail with [ErrPeerHung] after Config.HangTimeout, on
// every link; a peer that resumes earlier causes no error. [Engine.Watch] reports both
// events to a program that has no operation in flight. Other peers are not affected. An
// operation that the target refuses (a stale key) takes the connection with that peer down:
// operations behind it fail with [ErrFlushed], until [Peer.Reset] makes a new connection.
//
// # Memory
//
// The engine holds one connection with Config.Depth requests for each peer with which there
// have been operations. Operations posted beyond that depth wait in a list. Regions lie
// outside the Go heap.
//
// # Configuration and observation
//
// No setting is required. Each field of [Config] is also an environment variable and a line of
// a settings file, which override it, so that a job can run with other settings without a new
// binary: docs/configuration.md. [Engine.Stats] and [Peer.Stats] return counters; the module
// metrics exports them to Prometheus; [Config.Logger] receives rare events; execution
// traces show the waits: docs/observability.md.
//
// # Concurrency
//
// All functions and methods may be called from any goroutine, except that only one
// goroutine at a time may wait for a request or an [Event], or use a [Batch] or a
// [RecvBatch]. A panic in a handler or another callback ends the process, even if a goroutine
// that waits, and therefore runs it, recovers panics. So may a nil context.
//
// A callback is a function that the engine calls: of Then, ThenLen, SendFunc, RecvFunc, a
// handler without workers, or a method of a [Receiver]. It may run on the goroutine that
// drives the engine, which no other goroutine can drive until it returns. Therefore it must
// not block. It may start operations, and call [Event.Set], [Receiving.Resume],
// [RecvRequest.Cancel], Then, Forget, Done, and what only reads values, such as [Region.Bytes].
// All other calls may wait for the engine, and then wait for ever, those without a context
// too: [Region.Close], [Engine.Close], [Engine.Invalidate], [Engine.Handle],
// [Engine.Receive] and their Close, [Engine.Stats], [Batch.Explain], [Mapping.Attach],
// [Engine.FenceAll], [Peer.Reset] and every wait. The same call may succeed if the operation
// was complete before Then, as it often is between ranks on one host. To make such a call
// when an operation ends, pass the result to another goroutine by [Event.Set] or by a channel
// with room for it.
//
// # testing/synctest
//
// An engine that was opened outside may be used in a bubble: memory, one-sided operations,
// flushes, waits for signals and an [Event], messages with requests or a [Receiver], and the
// connections of rmanet. A goroutine that waits stops the bubble's clock.
//
// All else belongs outside: handlers, [Engine.Watch] and [WatchRails], [Engine.Barrier] and
// the other calls of all ranks, [Peer.Reset], [Engine.Close], and packages coll and locks.
// Some make channels that goroutines outside use, for which the runtime ends the process.
// Callbacks may run outside, so they must not use channels of the bubble either.
//
// # Stability
//
// Applications import this package, and for more: coll (collective operations), locks, and
// rmanet (net.Conn between ranks). The interface may change before version 1.
//
// # Files
//
//	config.go   Config; effective.go merges it with the settings file and the environment
//	setup.go    Open: links, memory and peers, by internal/bringup
//	engine.go   Engine: close, watch, barrier, what the job reports; closing.go the order in
//	            which Close releases resources
//	dispatch.go completions and notifications to one-sided operations (internal/initiator),
//	            messages (package hub) and heartbeats; heartbeat.go detection of hung peers;
//	            watch.go the end of a connection, reports of peers' states
//	region.go   Region, Buffer, Access, Key, Remote; view_unsafe.go memory as numbers
//	peer.go     Peer: puts and gets, of one piece and of several; connection.go where a peer
//	            runs, events of its connection; rails.go those of rails; reset.go new connections
//	atomic.go   atomics, Accumulate, Fetch; accumulate.go those of several pieces, or with a
//	            result
//	signal.go   put with signal, waiting for signals; Event; Flush, Fence
//	message.go  Send, Recv, Handle and Receive, from any peer as well; RecvBatch;
//	            batch.go Batch; handle.go Handler, Messages; receiver.go Receiver;
//	            conversation.go the channels of a peer, for internal/message/hub
//	request.go  Request, AtomicRequest, WaitAll, WaitAny, callbacks
//	barrier.go  how ranks meet; collective.go calls of all ranks: AllGatherKeys; window.go
//	            Window; array.go Array
//	errors.go   errors; stats.go counters
//
// The package imports every floor below it (docs/architecture.md). Its tests run over shm
// and tcp in one process; examples/hello tests it with several processes.
package rma
