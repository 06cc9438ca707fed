// Package bench measures links and channels between two ranks: latency,
// bandwidth and message rate of one-sided operations, as numbers that can be
// compared with perftest's.
//
// It is on the top floor, beside the commands, and may import every lower floor;
// cmd/rmabench only binds flags to it. Rank 0 measures and reports, rank 1 responds. Rank 0
// sends the plan to rank 1, so that only one side needs options.
//
// # Definitions
//
//   - lat put, send, eager: half of a round trip in which each side answers as soon as the
//     message is visible in its memory (as ib_write_lat).
//   - lat get, fadd, cas: from posting to the completion, the full operation
//     (as ib_read_lat).
//   - bw and rate: a window of requests is kept outstanding, posted as chains of which the
//     last is signalled; bytes or messages over the time from the first post to the last
//     completion. Their lat_us is a chain's time from posting to completion, not one
//     message's latency. For send: messages are posted by chains while fewer than a window
//     are in flight, the receiver keeps a window of receives posted, and the time ends when
//     the receiver confirms that all have arrived.
//   - MB/s are 1e6 bytes per second. Percentiles come from a histogram with three
//     significant digits; minimum, maximum and mean are exact. Every sample includes one
//     reading of the cycle counter, which is not subtracted; its cost is reported as
//     timer_ns.
//
// # Files
//
//	sizes.go      the syntax of --sizes
//	plan.go       Plan and its checks on both sides
//	result.go     Result, and the machine it was measured on
//	format.go     table, JSON lines, CSV, Go benchmark lines; lines.go reads lines back
//	group.go      results by their cells; medians and ranges
//	record.go     samples and percentiles
//	pattern.go    position-dependent payloads for validation
//	control.go    the slow channel between the two ranks
//	side.go       one side of the link (internal/poller posts and waits)
//	latency.go    ping-pong and round trips
//	stream.go     bandwidth and rate
//	message.go    messages: the channel, and the model that chooses their mode
//	messagelat.go, messagestream.go  their ping-pong and streams
//	rendezvous.go  streams of messages beside raw reads
//	eager.go      messages of the bare eager ring
//	plogp.go      sampling a link; plogptext.go its tables
//	startup.go    the cost of sampling at the start of an engine
//	engine.go     puts and messages through package rma, as applications do; engineplay.go
//	              the two sides of a pair
//	sweep.go      the sweep over operations, sizes and rounds
//	rank.go       functions shared with other packages' measurements
//	pin.go        a processor for each rank
//	meter*.go     processor time of both ranks
//	cell_unsafe.go  atomic reads of memory that a peer writes
//
// # Invariants
//
// Timing loops allocate nothing, read time by internal/cpu.Ticks, and yield when they wait.
// Every wait ends: by the peer's answer, by the link's report that the peer is gone, or by a
// deadline.
package bench
