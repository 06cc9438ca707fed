// Package rdv moves large messages by rendezvous: the side that has the data
// says where it lies, and the side that wants it fetches it with remote reads
// straight into its final place. Nothing is copied at either end, and no step
// waits for a call of either application: the owner of the link drives it.
//
// The package is a part of the engine below package rma. Applications use rma; what
// is exported here may change in any release.
//
// A [Channel] joins two peers and serves both directions. It sits on an
// endpoint that others may use as well, and talks over a small ring of its own
// (an eager.Channel under the class flowctl.Control).
//
// # Read
//
//	S  Send ── RTS: descriptor ──────────────► R  Match: a destination for each message,
//	   sources                                    or Later (Accept follows), or Refuse
//	   stay put ◄────────── remote reads ───────  in runs of neighbours, several in flight
//	                                              Received, message by message
//	S  Sent ◄──────────── FIN: status ──────────  when the last one ended
//
// A batch whose messages find their destinations one after the other is fetched
// in that order, before the whole batch is matched. The FIN names the
// messages that the receiver refused.
//
// # Receiver first
//
//	R  Advertise ── destination ────────────► S  Advertised: Write or Decline, now or later
//	   memory stays  ◄──── remote writes ──────
//	R  Filled ◄─────── done, or decline ───────  Sent when the writes are complete
//
// This is cheaper by a hard latency where the receiver knows the destination before
// the sender has the data. "Done" follows the writes on the same endpoint: a receiver
// that sees it sees them. Each advert gets one answer, also when it is revoked, or
// when the data takes another way (a Send that crossed it: the sender declines);
// until then the memory is the peer's to write. A peer that has nothing to do with
// this side need not poll its ring: a side that cannot go on without the answer calls
// Nudge, as Revoke does, and the notification has the peer call Progress. What an
// advert is wanted for, what was written and why not is carried for the layer above:
// internal/message matches receives and messages by it.
//
// # Unregistered memory
//
// SendUnregistered offers a message; when the receiver has a destination for it,
// chunks are copied into staging memory, or registered where they lie, one ahead
// of those that are being fetched: a superpipeline, see growth.go. Nothing is
// staged before the receiver is ready, so that a message without a receive cannot
// hold the staging memory that others wait for. Staging is bounded; without room,
// chunks wait.
//
// # Who owns which memory
//
//   - Sources belong to the transfer from Send to Handler.Sent. After a failure
//     of the channel alone (a peer that broke the rules) that is when the endpoint
//     is down or Sever was called: until then the peer may be reading.
//   - Destinations belong to it from Match or Accept to Handler.Received, which
//     comes only when no read into them is in flight.
//   - Sources of Write belong to it until Handler.Sent, advertised destinations until
//     Handler.Filled (after a failure of the channel alone: as above), unregistered
//     sources until Handler.Sent.
//   - Descriptors, piece lists and tokens are copied by the call.
//
// Every transfer and every message ends exactly once, whatever fails.
//
// # Bounds
//
// Both sides agree at set-up how many transfers of how many messages and regions
// may be outstanding; all state is made for that, and no message of a peer makes
// it grow. Answers wait in a queue with a place for each slot, so that taking
// the peer's messages never waits for room to answer. Too much of our own is a
// value, [Busy].
//
// Reads in flight are bounded by Caps.MaxReads, over all transfers in turn:
// a link would queue more, and in its queue they would hold up FINs and
// everybody else's requests.
//
// # Hostile peers
//
// Ids are slot and generation, chosen by the side that begins; the other
// expects exactly the next generation of a slot that is free. Everything else
// (unknown kind, bad descriptor, unknown or repeated id, bad status, more than
// agreed, sizes that do not match) is a [*ProtocolError] and ends this channel, nothing else. What a
// descriptor says about memory is checked by the link of the peer that owns it:
// a bad key fails the read and thereby the endpoint. A peer that says FIN and
// goes on reading gets what it deserves.
//
// # Concurrency
//
// A channel belongs to the goroutine that owns the link's Poll. It polls the
// link, hands completions of the endpoint to OnCompletion and calls Progress.
// [Handler] is called from within these. Messages and descriptors do not
// allocate once the slots have grown to their size.
//
// # Imports and files
//
// A Channel is two halves: a source, which has data, and a sink, which wants it.
// Imports eager, scatter, fabric, flowctl, internal/fifo.
//
//	channel.go  Channel: open, connect, progress, completions
//	control.go  control messages: answers, dispatch
//	post.go     posting requests of both sides in turn
//	end.go      failure, what the peer said before it, Sever, Close
//	send.go     source: transfers of this side, FIN
//	pipe.go     source: chunks of unregistered memory
//	write.go    source: destinations of the peer, writing into them
//	source.go   source: its slots
//	announcements.go
//	            source: how many may be outstanding
//	match.go    sink: transfers of the peer and their destinations
//	run.go      sink: which of their messages are fetched next
//	advert.go   sink: destinations of this side
//	sink.go     sink: its slots, ends of messages
//	core.go     what source and sink share
//	handler.go  Handler and Matcher: the layer above
//	growth.go   sizes of chunks
//	staging.go  memory for them
//	wire.go     their codec
//	setup.go    Setup, the blob peers exchange
//	options.go  Options
//	errors.go   errors
//
// Tests: exhaustive_test.go plays every order of the steps of two sides up to a
// length; script_test.go random scripts on both sides, over simulated and real
// links, against a plain model (app_test.go); faults_test.go the same with
// failures and death; hostile_test.go a peer without rules; owners_test.go two
// goroutines with everything at once; ibv_test.go all that over queue pairs;
// bench_test.go measures and holds the allocations at none.
package rdv
