// Package initiator drives the one-sided operations of an engine: puts, gets, atomics,
// signals, accumulates, flushes and fences, and waits for words that peers change.
//
// An [Op] is built by the calling goroutine (New, then what it is about) and posted to the
// [Queue] of its peer. The owner of the progress engine makes work requests of the
// operations of a queue, in order, as many as the link takes, and ends operations by their
// completions. Where the link maps the target's memory, a small operation that nothing
// waits before is carried out in the call and needs no Op (Queue.TryMove, Queue.TryAtomic).
//
// Operations that no link has take several requests: emulated atomics are loops of
// compare-and-swaps, accumulates are requests that the target's engine serves, a put with a
// signal is a write and the change of a word. Puts and gets of many pieces go as one request
// of the link for each, or in groups, which the target's engine serves, too.
//
// # Ownership
//
// [Engine] and [Queue] belong to the owner of the progress engine, but for what says that
// it may be called from any goroutine. An Op is its maker's until Queue.Post, then the
// owner's until it is finished (package pending).
//
// # Connections
//
// A queue is told of its connection by Up and Down, and tells its [Host] what the link
// reports. After Down everything ends with its error: what was not posted at once, the rest
// as its requests come back. Renew makes the queue fit for the next connection.
//
// # Files
//
//	engine.go           Engine: links, queues, one step
//	queue.go            Queue: operations with one peer, complete in the call or posted; Host
//	mapped.go           operations of many requests carried out on memory that is mapped here
//	post.go             operations become work requests, those of a put with a signal included
//	complete.go         work request IDs and result slots; completions end operations; Flush
//	accumulate.go       what the target's engine carries out, accumulates and groups: both sides
//	group.go            groups of puts or gets: how their way is chosen, what they hold up
//	emulated_atomic.go  atomics that no link has
//	control.go          notifications and probes, which go before operations
//	await.go            waiting for words
//	stage.go            memory of any kind made fit for a link
//	op.go               Op, Kind, lists of operations
//
// It imports eager for its naps, message for pinned memory, and what is below.
package initiator
