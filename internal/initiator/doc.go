// Package initiator executes the one-sided operations of an engine: puts, gets, atomics,
// signals, accumulates, flushes and fences, and waits for words that peers change.
//
// The calling goroutine builds an [Op] (New, then its arguments) and posts it to the [Queue]
// of its peer. The owner of the progress engine turns the operations of a queue into work
// requests, in order, as many as the link takes, and completes operations by their
// completions. If the link maps the target's memory, a small operation with nothing queued
// before it is executed in the call and needs no Op (Queue.TryMove, Queue.TryAtomic).
//
// Operations that links do not implement take several requests: emulated atomics are
// compare-and-swap loops, accumulates are requests that the target's engine serves, a put
// with signal is a write and the change of a word.
//
// # Ownership
//
// [Engine] and [Queue] belong to the owner of the progress engine, except methods that say
// that any goroutine may call them. An Op belongs to its maker until Queue.Post, then to the
// owner until it is finished (package pending).
//
// # Connections
//
// Up and Down notify a queue of its connection; the queue passes the reports of the link to
// its [Host]. After Down every operation ends with its error: those not posted at once, the
// others as their requests are flushed. Renew prepares the queue for the next connection.
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
// It imports eager for its Backoff, message for pinned memory, and what is below.
package initiator
