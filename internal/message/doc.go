// Package message moves the messages of one pair of ranks: it holds what the
// application posts, decides for the whole backlog how to move it, and gives
// messages to receives in the order in which they were sent, whatever way each
// of them took.
//
// # From backlog to wire
//
// Send appends to a list. Progress takes what has gathered there, asks the cost
// model (package logp) for a plan, and carries it out:
//
//	eager    one ring message each                        eager.Channel
//	gather   runs of messages in one ring message         gather, eager.Channel
//	scatter  descriptors; the peer reads                  scatter, rdv.Channel
//	direct   writes to where the peer wants it            rdv.Channel
//
// While the ring has no credit, the link's queue is full, or the peer keeps as
// many transfers as it may, messages wait here and are planned together when
// that ends: a busy link is what makes batches.
//
// A message alone that is so small that nothing beats eager is not planned, nor are
// several that are so small that nothing beats gathering them (a coalesced run): the
// bounds are computed when the parameters are set.
//
// # Order
//
// Every message has a sequence number, counted from 1 in the order of Send. Two
// streams carry them, the ring and the descriptors. The ring is in rising order: a
// message that cannot be announced now stops those behind it that would go through the
// ring. Descriptors mostly are, and the receiver sorts them: where the ring stays full
// because no receive asks for what is in it, the messages that wait for it are announced
// instead, behind later ones. The receiver merges the two sorted streams: the next number
// is at the head of one of them, or on its way. Descriptors never wait behind data, and
// nothing passes the messages of the ring that would use up the peer's last descriptors.
//
// The numbers of written messages are a third stream, in no order: they wait
// in a list, bounded by the receives that may be advertised, until their turn has come.
//
// # Receiver first
//
// A receive as large as messages that are announced is advertised to the peer,
// which writes the message that takes it in place. The peer must know which one that
// is: it does if it knows all receives that compete with this one, and how each of
// them ended. docs/wire.md has the rules, ADR 9 why they are enough. One receive:
//
//	state      event                         then
//	posted     offer                         open
//	open       done, its turn comes          over, settled
//	open       a message comes another way   copied or read to Buf; over when settled
//	open       decline: spoken for           settled, still posted
//	open       decline: late                 posted, to be advertised again later
//	open       revoked; decline: revoked     withdrawn, unless a message came meanwhile
//	open       the channel ends              over at Sever: the peer may write until then
//	settled    its message comes             over
//
// and one message at the sender, considered once, in order (assign):
//
//	first advertised receive   is long enough     written there, its turn in the ring skipped
//	of its tag                 is too short       declined; the next one is considered
//	                           message is small   declined; it goes through the ring
//	none                       -                  those advertised before it was seen are late
//
// A receive that stands behind one of a Shared which may take its message is not
// advertised: the peer does not know of those. One that is withdrawn is revoked first;
// the peer gives it back if it has not assigned it, and declines those behind it that
// compete as late, since both sides would not number the same receives any more.
//
// An advertisement that is declined has cost two control messages, so receives are
// advertised only where the last ones of their tag got large messages.
//
// # Matching
//
// A receive takes the first message, in order, whose tag it asks for. A message
// that no receive asks for is copied aside. Where the copies and one ring more would exceed
// Options.Unexpected bytes, the credit for what is copied is kept back until some are taken,
// so that no more come. Large messages that no receive asks for stay at the sender, which has
// announced them. It announces as many as the peer can fetch at once, and more, up to 2048,
// when the peer takes none of these; where the ring stays full, small ones as well.
// A receiver reads 1024 messages of a peer at once, and fewer where the link cannot register
// memory for so many; the others wait.
//
// Receives that compete end in the order of their messages, although some of these are
// fetched and others are here: see recv_waiting.go.
//
// # Memory
//
// The caller's memory is free when the message's Completer is called: at once
// where it was copied, when the link is done with it where it was taken in
// place, when the peer has fetched it where it was announced. A receive is not over
// while it is advertised. Sources and destinations of large messages that are
// not registered are pinned and registered by Pins, which keeps them so up to a limit
// (ADR 10); sources that cannot be are copied through staging memory.
//
// # Failure
//
// What a peer sends is checked here, in eager, gather, scatter and rdv. A lie
// ends this channel with an error that wraps ErrPeer; the link and other
// channels go on. Everything posted ends exactly once: what waits, at once;
// what the link or the peer may still touch, at Sever. What came before the end is taken
// in first, for receives that are there or come later, but for what is behind a message
// that was lost: see receiver.finish.
//
// # Concurrency and files
//
// A Channel belongs to the owner of its link. It imports eager, rdv, gather,
// scatter, sampling (for its defaults), logp, fabric. Files stand from the top to the
// bottom: each uses only what stands below it. The two directions use nothing of each
// other; what they share is in streams.
//
//	channel.go          Channel: open, connect, progress, end
//	loopback.go         Loopback: a rank and itself
//
//	send_backlog.go     the backlog: a message at once, a run, or a plan, carried out
//	send_ring.go        messages and gathers through the ring
//	send_coalesce.go    coalesced runs through the ring
//	send_rendezvous.go  messages announced, or written to advertised receives
//	sender.go           sender: its state; posting and ending messages; receives that the
//	                    peer has advertised
//	send_learn.go       timing a backlog now and then; what plans learn of it
//	send_model.go       the cost model, and the bounds that need no plan
//	send_batch.go       the front of the backlog, as planned
//
//	recv_deliver.go     what comes first; receives that meet what was put aside; the end
//	recv_ring.go        messages, gathers and runs from the ring
//	recv_fetch.go       announced messages, fetched
//	recv_advertise.go   receives advertised, and the messages written to them
//	receiver.go         receiver: its state; matching and ending receives
//	recv_gather.go      a gather while it is taken apart
//	recv_advertised.go  which receives may be advertised
//	recv_waiting.go     what waits: messages that no receive has asked for, announced
//	                    ones, receives whose turn to end has not come
//
//	streams.go          what the two directions share
//	in.go, out.go       In, Out and their lists; Shared: receives from any of several
//	                    channels
//	wire.go             tags of a gather; what peers exchange besides
//	pins.go             Pins: memory of applications, kept registered
//	options.go          Options and defaults; errors.go errors
package message
