// Package rdv transfers large messages by rendezvous: the sender announces the address of
// its data, and the receiver fetches it by remote reads directly into its final place.
// Neither end copies, and no step waits for a call of either application: the owner of the
// link drives it.
//
// The package is a part of the engine below package rma. Applications use rma; the exported
// names may change in any release.
//
// A [Channel] connects two peers and serves both directions. It shares its endpoint with
// other users, and exchanges control messages over a small ring (an eager.Channel under the
// class flowctl.Control).
//
// # Read
//
//	S  Send ── RTS: descriptor ──────────────► R  Match: a destination for each message,
//	   sources                                    or Later (Accept follows), or Refuse
//	   stay put ◄────────── remote reads ───────  in runs of neighbours, several in flight
//	                                              Received, message by message
//	S  Sent ◄──────────── FIN: status ──────────  when the last one ended
//
// A batch whose messages find their destinations in order is fetched in that order, before
// the whole batch is matched. The FIN contains the messages that the receiver refused.
//
// # Transfers that both ends carry out
//
// Where peers map each other's memory, a read by the receiver and a write by the sender are
// the same copy, made by the processor of one or the other. The receiver offers a transfer of
// one large message: it sends the destination and the address of a claim word. Both ends then
// claim slices of the message in that word, the receiver from the front, the sender from the
// back, and copy them: both at once if both wait, or all of them by the end that waits while the
// other one computes. Whoever copies the last slice ends the transfer. A message of less than 256
// KiB is one slice.
//
//	S  Send ── RTS: descriptor ──────────────► R  Match, Accept: one destination
//	S  ◄───────── CTS: destination, word ─────
//	S  writes slices ═══════════► ◄═══════════ R  reads slices
//	S  ── placed, or ◄── FIN ─────────────────    from the end that copied the last one
//
// An end claims its first slice in the Progress after the one in which it heard of the transfer: the
// call that posts a receive or a message, which makes one round, copies none. A destination of 256
// KiB or more is advertised with a claim word as well. A sender that has such a message for it sends its
// source (SHARE), and the transfer goes on in the same way, up to a done or FILLED.
//
// # Advertised destinations
//
//	R  Advertise ── destination ────────────► S  Advertised: Write or Decline, now or later
//	   memory stays  ◄──── remote writes ──────
//	R  Filled ◄─────── done, or decline ───────  Sent when the writes are complete
//
// This saves one hard latency if the receiver knows the destination before the sender has
// the data. "Done" follows the writes on the same endpoint: a receiver that sees it sees
// them. Each advert gets one answer, even if it is revoked, or if the data travels in
// another mode (after a Send that crossed it the sender declines). Until then the peer may
// write to the memory. A peer without traffic to this side need not poll its ring: a side
// that needs the answer to continue calls Nudge, as Revoke does, and the notification makes
// the peer call Progress. The purpose of an advert, the size written and the reason of a
// decline are passed to the layer above: internal/message matches receives and messages by
// them.
//
// # Unregistered memory
//
// SendUnregistered announces a message. When the receiver has a destination for it, chunks
// are copied into staging memory, or registered in place, one ahead of the chunks that are
// being fetched: a superpipeline, see growth.go. Nothing is staged before the receiver is
// ready, so that a message without a receive cannot occupy the staging memory that others
// need. Staging memory is bounded; chunks wait for room.
//
// # Ownership of memory
//
//   - Sources belong to the transfer from Send to Handler.Sent. After a failure of the
//     channel alone (the peer violated the protocol), Sent is called when the endpoint is
//     down or Sever was called: until then the peer may be reading.
//   - Destinations belong to the transfer from Match or Accept to Handler.Received, which
//     is called only when no read into them is in flight.
//   - Sources of Write belong to the transfer until Handler.Sent, advertised destinations
//     until Handler.Filled (after a failure of the channel alone: as above), unregistered
//     sources until Handler.Sent.
//   - The calls copy descriptors, piece lists and tokens.
//
// Every transfer and every message ends exactly once, whatever fails.
//
// # Bounds
//
// Both sides agree at set-up on the number of outstanding transfers, and of messages and
// regions per transfer. All state is allocated for these bounds, and no message of a peer
// makes it grow. Answers wait in a queue with a place for each slot, so that processing the
// peer's messages never waits for room to answer. If this side has too many transfers, the
// call returns [Busy].
//
// Reads in flight are bounded by Caps.MaxReads, over all transfers in turn: a link would
// queue more, but in its queue they would delay FINs and requests of other users.
//
// # Hostile peers
//
// IDs consist of slot and generation, chosen by the side that begins; the other expects
// exactly the next generation of a free slot. Everything else (unknown kind, bad
// descriptor, unknown or repeated ID, bad status, more than agreed, sizes that do not
// match) is a [*ProtocolError] and ends only this channel. The link of the peer that owns
// the memory checks the addresses of a descriptor: a bad key fails the read and thereby the
// endpoint. A peer that sends FIN and continues to read gets arbitrary data.
//
// # Concurrency
//
// A channel belongs to the goroutine that owns the link's Poll. It polls the link, passes
// completions of the endpoint to OnCompletion and calls Progress, which call the [Handler].
// Messages and descriptors do not allocate once the slots have grown to their size.
//
// # Imports and files
//
// A Channel has two halves: a source, which has data, and a sink, which receives it. Imports
// eager, scatter, fabric, flowctl, internal/fifo.
//
//	channel.go  Channel: open, connect, progress, completions
//	control.go  control messages: answers, dispatch
//	post.go     posting requests of both sides in turn
//	end.go      failure, messages that the peer sent before it, Sever, Close
//	send.go     source: transfers of this side, FIN
//	pipe.go     source: chunks of unregistered memory
//	write.go    source: destinations of the peer, adverts and CTS, writing into them
//	source.go   source: its slots
//	announcements.go
//	            source: bounds of the outstanding transfers
//	match.go    sink: transfers of the peer and their destinations
//	run.go      sink: which of their messages are fetched next
//	advert.go   sink: destinations of this side
//	sink.go     sink: its slots, ends of messages
//	slices.go   slices of a message, and how the two ends claim them
//	claim.go    the claim words, and Carrier
//	share.go    transfers that both ends carry out; copy.go  copying their slices
//	core.go     state shared by source and sink
//	handler.go  Handler and Matcher: the layer above
//	growth.go   sizes of chunks
//	staging.go  memory of chunks
//	wire.go     codec of the control messages
//	setup.go    Setup, the blob that peers exchange
//	options.go  Options
//	errors.go   errors
//
// Tests: exhaustive_test.go runs every order of the steps of two sides up to a length;
// script_test.go runs random scripts on both sides, over simulated and real links, against
// a simple model (app_test.go); faults_test.go adds failures and death; hostile_test.go
// implements a hostile peer; owners_test.go runs two goroutines with all operations at
// once; ibv_test.go runs all that over queue pairs; bench_test.go measures, and checks that
// nothing allocates.
package rdv
