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
// as it may, messages wait in the list; they are planned together afterwards. Thus batches
// form while the link is busy.
//
// A single message so small that no mode beats eager is not planned. Neither are several
// messages so small that no mode beats gathering them (a coalesced run). These bounds are
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
// # Synchronous messages
//
// A synchronous message (Out.Sync) is announced, whatever its size and whatever the plan, or
// written to an advertised receive, because such a message ends only when a receive has
// matched it. It is alone in its descriptor: a descriptor ends when all its messages have
// been fetched, and the receiver may take the next one only after the sender has learned of
// this one. Messages are matched in order, so that those before it have arrived when it ends.
//
// # Advertised receives
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
//	open       decline: taken                settled, still posted
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
// A receive that competes with an earlier one of a Shared is not advertised: the peer does
// not know the receives of a Shared. That holds as well while the earlier one waits for the
// end of another peer's message: if that is lost, the receive returns to its place. A receive that is withdrawn is revoked first; the peer
// returns it if it has not assigned it, and declines the receives behind it that compete
// with it as late, since the two sides would no longer number the same receives.
//
// A declined advert costs two control messages, so receives are advertised only if the last
// receives of their tag got large messages.
//
// # Matching
//
// A receive takes the first message, in order, that matches its tag and that no Source before
// it has left for later. A message that no receive matches is copied; if the receives have
// just run out, only after a few rounds of polls, see recv_rest.go. If the copies and one more ring would exceed Options.Unexpected bytes, the credit for the copies is withheld until some are received,
// so that no more arrive. Large messages that no receive matches stay at the sender, which
// has announced them. It announces as many as the peer can fetch at once, and, if the peer
// takes none of these, up to 2048; if the ring stays full, it announces small ones as well.
// A receiver reads 1024 messages of a peer at once, or fewer if the link cannot register
// memory for so many; the others wait.
//
// Competing receives complete in the order of their messages, although some messages are
// fetched while others are already complete: see recv_waiting.go.
//
// # Memory
//
// The caller may reuse its memory when the message's Completer is called: at once for a
// copied message, when the link has sent it for a message in place, when the peer has
// fetched it for an announced one. The buffer of an advertised receive may be written until
// the receive completes. Pins pins and registers sources and destinations of large messages
// that are not registered, and keeps them registered up to a limit (ADR 10). Sources that
// cannot be registered are copied through staging memory.
//
// # Failure
//
// Data from a peer is checked here and in eager, gather, scatter and rdv. A violation ends
// this channel with an error that wraps ErrPeer; the link and other channels continue.
// Every posted operation ends exactly once: waiting ones at once, those whose memory the
// link or the peer may still access at Sever. Messages that arrived before the end are
// received first, by present and later receives, except messages behind a lost one: see
// receiver.finish.
//
// # Concurrency and files
//
// A Channel belongs to the owner of its link. It imports eager, rdv, gather, scatter,
// sampling (for its defaults), logp, fabric. Files are listed from the top down: each uses
// only those below it. The two directions do not use each other; their common state is in
// streams.
//
//	channel.go          Channel: open, connect, progress, end
//	loopback.go         Loopback: a rank and itself
//
//	send_backlog.go     the backlog: a message alone, a run, or a plan, executed
//	send_ring.go        messages and gathers through the ring
//	send_coalesce.go    coalesced runs through the ring
//	send_rendezvous.go  messages announced, or written to advertised receives
//	sender.go           sender: its state; posting and ending messages; receives that the
//	                    peer has advertised
//	send_learn.go       samples the time of backlogs to correct the parameters of plans
//	send_model.go       the cost model, and the bounds that need no plan
//	send_window.go      when to ask for a larger ring
//	send_batch.go       the front of the backlog, as planned
//
//	recv_deliver.go     merging the streams; receives of unexpected messages; the end
//	recv_ring.go        messages, gathers and runs from the ring
//	recv_rest.go        messages that stay there for a moment, for receives to come
//	recv_fetch.go       announced messages, fetched
//	recv_advertise.go   receives advertised, and the messages written to them
//	receiver.go         receiver: its state; matching and ending receives
//	recv_gather.go      a gather while it is split
//	recv_advertised.go  which receives may be advertised
//	recv_waiting.go     unexpected messages, announced ones, and receives that wait for
//	                    others to end
//	copied.go           copies of unexpected messages, used again
//
//	uses.go             whether messages or receives use some memory
//	streams.go          state that the two directions share
//	in.go, out.go       In, Out and their lists; Shared: receives from any of several
//	                    channels
//	wire.go             tags of a gather; other data that peers exchange
//	pins.go             Pins: application memory, kept registered
//	options.go          Options and defaults; errors.go errors
package message
