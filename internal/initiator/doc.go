// Package initiator executes the one-sided operations of an engine: puts, gets, atomics,
// signals, accumulates, flushes and fences, and waits for words that peers change.
//
// The calling goroutine creates an [Op] (New, then its arguments) and posts it to the
// [Queue] of its peer. The owner of the progress engine turns the operations of a queue
// into work requests, in order, as many as the link takes, and ends operations by their
// completions. If the link maps the target's memory, a small operation with nothing queued
// before it is executed in the call and needs no Op (Queue.TryMove, Queue.TryAtomic).
//
// Operations that links do not implement take several requests: an emulated atomic is a
// compare-and-swap loop, an accumulate is a request that the target's engine executes, a
// put with signal is a write and an update of a word.
//
// # Ownership
//
// [Engine] and [Queue] belong to the owner of the progress engine, except for methods
// documented as safe for any goroutine. An Op belongs to its creator until Queue.Post, then
// to the owner until it is finished (package pending).
//
// # Connections
//
// Up and Down notify a queue of its connection; the queue forwards the link's reports to
// its [Host]. After Down every operation ends with its error: operations that were not
// posted end at once, the others when their requests are flushed. Renew prepares the queue
// for the next connection.
//
// # Files
//
//	state.go            Engine, Queue, Op and their parts: what they hold; Host
//	op.go               Op: its arguments
//	queue.go            Queue: what its user asks
//	engine.go           set-up, one step, the end; connections come and go, and what they
//	                    report
//	mapped.go           operations executed on mapped memory, most of them in the call
//	post.go             operations to work requests, including those of a put with signal
//	complete.go         work request IDs and result slots; completions end operations; Flush
//	accumulate.go       accumulates and groups, which the target's engine executes: both sides
//	group.go            groups of puts or gets: how they are chosen, what they hold back
//	emulated_atomic.go  atomics that links do not implement
//	rails.go            several connections to a peer: parts of operations are posted, and end; what waits for them
//	rails_divide.go     how puts and gets are divided over them
//	rails_marks.go      which puts the peer has placed when one of them ends
//	rails_pieces.go     vectors and shapes whose pieces use the rails one by one
//	rails_ways.go       whole over which of them, or divided
//	control.go          notifications and probes, which are posted before operations
//	await.go            waits for words
//	stage.go            memory of any kind, made usable by a link
//	standalone.go       an Engine with one Queue, without an engine of package rma
//
// It imports eager for Backoff, message for pinned memory, and packages below these.
package initiator
