// Package message transfers the messages between one pair of ranks: it queues the messages
// that the application posts, plans the whole backlog, and matches messages to receives in
// the order in which they were sent, in whatever mode each travels.
//
// # From backlog to wire
//
// Send appends to a list. Progress takes the messages in the list, asks the cost model
// (package logp) for a plan, and executes it:
//
//	eager    one ring message each                        eager.Channel
//	gather   runs of messages in one ring message         gather, eager.Channel
//	scatter  descriptors; the peer reads                  scatter, rdv.Channel
//	direct   writes to where the peer wants it            rdv.Channel
//
// While the ring has no credit, the link's queue is full, or the peer has as many transfers
// as it may, messages wait in the list and are planned together when that ends: batches form
// while the link is busy.
//
// A single message so small that no mode beats eager is not planned, nor are several
// messages so small that no mode beats gathering them (a coalesced run): the bounds are
// computed when the parameters are set.
//
// # Order
//
// Every message has a sequence number, counted from 1 in the order of Send. Two streams
// carry them, the ring and the descriptors. The ring is in rising order: a message that
// cannot be announced now stops the messages behind it that would travel through the ring.
// Descriptors mostly are in rising order, and the receiver sorts them: if the ring stays
// full because no receive matches its messages, the messages that wait for it are announced
// instead, behind later ones. The receiver merges the two sorted streams: the next number is
// at the head of one of them, or in flight. Descriptors never wait behind data, and no
// descriptor overtakes messages of the ring if that would use up the peer's last
// descriptors.
//
// The numbers of written messages are a third stream, in no order: they wait for their turn
// in a list, bounded by the number of receives that may be advertised.
//
// # Receiver first
//
// A receive as large as messages that are announced is advertised to the peer, which writes
// the matching message into place. The peer must know which message matches: it does if it
// knows all receives that compete with this one, and how each of them ended. docs/wire.md
// has the rules, ADR 9 the proof that they suffice. One receive:
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
// One message at the sender, considered once, in order (assign):
//
//	first advertised receive   is long enough     written there, its turn in the ring skipped
//	of its tag                 is too short       declined; the next one is considered
//	                           message is small   declined; it goes through the ring
//	none                       -                  those advertised before it was seen are late
//
// A receive behind one of a Shared that may take its message is not advertised: the peer
// does not know the receives of a Shared. A receive that is withdrawn is revoked first; the
// peer gives it back if it has not assigned it, and declines those behind it that compete
// with it as late, since the two sides would no longer number the same receives.
//
// A declined advert costs two control messages, so receives are advertised only where the
// last receives of their tag got large messages.
//
// # Matching
//
// A receive takes the first message, in order, that matches its tag. A message that no
// receive matches is copied. If the copies and one more ring would exceed Options.Unexpected
// bytes, the credit for the copies is held back until some are taken, so that no more
// arrive. Large messages that no receive matches stay at the sender, which has announced
// them. It announces as many as the peer can fetch at once, and more, up to 2048, if the
// peer takes none of these; if the ring stays full, it announces small ones as well. A
// receiver reads 1024 messages of a peer at once, or fewer if the link cannot register
// memory for so many; the others wait.
//
// Competing receives complete in the order of their messages, although some messages are
// fetched and others are here already: see recv_waiting.go.
//
// # Memory
//
// The caller may reuse its memory when the message's Completer is called: at once for a
// copied message, when the link has sent it for a message in place, when the peer has
// fetched it for an announced one. An advertised receive is not complete. Pins pins and
// registers sources and destinations of large messages that are not registered, and keeps
// them so up to a limit (ADR 10); sources that cannot be registered are copied through
// staging memory.
//
// # Failure
//
// Data of a peer is checked here and in eager, gather, scatter and rdv. A violation ends
// this channel with an error that wraps ErrPeer; the link and other channels continue. Every
// posted operation ends exactly once: waiting ones at once, those whose memory the link or
// the peer may still access at Sever. Messages that arrived before the end are received
// first, by present and later receives, except messages behind one that was lost: see
// receiver.finish.
//
// # Concurrency and files
//
// A Channel belongs to the owner of its link. It imports eager, rdv, gather, scatter,
// sampling (for its defaults), logp, fabric. Files are listed from the top to the bottom:
// each uses only those below it. The two directions do not use each other; their common
// state is in streams.
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
