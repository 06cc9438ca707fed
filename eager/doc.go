// Package eager transfers messages by one-sided writes: a circular buffer of blocks in the
// receiver's registered memory, which the sender fills by remote writes and the receiver
// polls. The receiver returns credit by remote writes as well. The package runs over any
// fabric link and never posts a receive.
//
// The package is a part of the engine below package rma. Applications use rma; the exported
// names may change in any release.
//
// A [Channel] connects two peers and holds both directions, a sender and a receiver. A
// [Budget] bounds the memory of the rings of many channels.
//
// # Memory
//
// Each side owns one region that the peer writes to: two cells on cache lines of their own,
// then the ring of the incoming direction. The sender keeps a mirror of the peer's ring,
// slot for slot, as the source of its writes.
//
//	offset   0  write cursor of the peer (ModeCursor only)   written by the peer
//	offset 128  credit word for our outgoing direction       written by the peer
//	offset 256  block 0, block 1, ... block N-1              written by the peer
//
// The payload of a message ends at an 8-byte trailer at the fixed end of its block, so that
// one write covers both and its last word is the trailer:
//
//	| unused ... | payload | 0-7 zeros | meta (optional, 8) | trailer (8) |
//	                                                        ^ polled by the reader
//
// The trailer carries a 16-bit lap number. A message longer than a block has only one
// trailer, in its first block; the payload that does not fit before it is the run, the
// contiguous memory of the following blocks:
//
//	| unused | payload | meta | trailer |  payload, over blocks p+1 ... p+k-1  |
//	  block p                              run: at most cut where the ring ends
//
// A gather of a hundred messages is then two writes with one list of pieces each, a
// megabyte is copied in two steps, and small blocks hardly slow down long messages. The
// price is that payload lies where the reader will poll for trailers of the next lap.
// Therefore the reader, when it returns the blocks of a run, writes a mark in place of each
// trailer: a trailer of this lap without a message. It posts the credit for these blocks
// after those stores. Hence the invariant of mode lap: the word that the reader polls is
// that of this lap, or a trailer or mark of the last lap; any other value is a corruption.
// The reader writes nothing else. docs/wire.md defines the bytes.
//
// Small messages of a stream that the sender stores directly into a mapped ring share blocks
// ([Channel.SendShort]): each lies before the one before it, and its trailer says whether others
// may follow, in which case the word before it, the place of the next trailer, is 0. The sender
// goes on to another block without notice: a reader that finds 0 looks at the next block as well,
// and frees the present one if that has begun.
//
// # When a message is visible
//
// ModeLap (default where Caps.LastByteLast): the trailer is the last word of its write. The
// link promises the order for the last word only, so a message of several blocks is written
// as its run first and its first block last, in a separate write: a reader that sees the
// trailer sees the whole message, because writes of an endpoint become visible in order.
// Blocks of a run are not polled before the run has been consumed and marked.
//
// ModeCursor (default elsewhere): one write for the message (two at the end of the ring),
// then, in the same Post, a second write of the position after it to the cursor cell.
// Messages staged together share that write. The reader reads trailers only up to the
// cursor, and writes no marks.
//
// More writes are needed only if a list of pieces is longer than the link allows
// ([Channel.StageVec]); their order is the same.
//
// # In place
//
// [Channel.StageVec] sends one message of several pieces. Some are copied to the mirror,
// others are read by the link in place. The mirror is also the staging area: copied
// neighbours are adjacent in it and share one SGE. Pieces in place belong to the link until
// [Channel.Done]. Package gather creates such pieces from batches, and [Lease.Split] splits
// gathers.
//
// Both modes, and credit, assume that on every link an aligned 8-byte write becomes visible
// as a whole.
//
// # Credit, completions, queue
//
// Package flowctl counts credit. Credit is returned after Options.Every consumed blocks
// (half a ring), or with reverse traffic after half of that. Writes are unsignalled except
// for one per quarter of the ring or of the queue. Lack of credit and a full queue are
// values ([NoCredit], [QueueFull]), not errors. Messages of class flowctl.Control may use
// blocks that data may not; flowctl states the rule for consumers.
//
// # Rings that follow the traffic
//
// With Options.Steps the first ring may be small: a writer that finds it too small asks for a
// larger one ([Channel.Want]), either side asks for the first one again ([Channel.Shrink]), and
// the reader offers it, within the Budgets of both sides. The writer moves at a marked message
// when the link has completed its writes to the present ring; until then it accepts none
// ([NoCredit]). The reader moves when it finds that message, so that nothing is in flight to a
// ring that is withdrawn, and order and number of the messages hold. Positions continue, see
// docs/wire.md. The directions are independent. A ring that is not asked for any longer stays
// until a side shrinks it: the layer above knows which peers are idle.
//
// # Sleeping readers
//
// If Caps.WakesOnWrite is false, a reader that is about to sleep sets a bit in the word
// that it writes to the peer ([Channel.Sleep]). A sender that has seen the bit requests a
// notification with the last write of every flush, data and credit alike, until the bit is
// cleared; not with a word in which only the bit is new, by which sleepers would wake each
// other. Writes in flight when the bit is set do not notify. Therefore, after Sleep(true)
// and Link.Arm, the reader polls its rings once more and then sleeps with the time-outs of
// [Backoff], short at first and doubling, so that a message that was in flight for a time d
// is seen after about 2·d at the latest.
//
// # Hostile peers
//
// The peer can write anything into the region at any time. Every word is loaded once,
// checked, and the checked value used; no access leaves the ring, whatever the word
// contains. An impossible value ends this channel with an error that wraps [ErrCorrupt]
// (blocks) or a flowctl.CursorError (cells); the link, the endpoint and other channels are
// not affected. Payload bytes may change while a [Lease] is open: copy (Recv) data that
// must not change.
//
// # Ownership
//
// A channel belongs to the goroutine that owns the link's Poll. It passes the completions of
// the channel's endpoint to OnCompletion.
//
// # Imports and files
//
// Imports fabric, flowctl, gather and internal/offheap.
//
//	channel.go       Channel: open, connect, receive, progress, completions, close
//	sleep.go         sleep bit and Backoff
//	lease.go         Lease: access in place; a gather opened in place
//	vec.go           sender: messages of pieces, some in place
//	send.go          sender: copied messages, messages that the caller composes
//	send_short.go    SendShort: one message through the peer's memory, without requests
//	flush.go         sender: posting, credit, notifications
//	compose.go       sender: a message in the mirror, the requests that write it; Room: memory
//	                 for a composed message
//	recv.go          receiver: finding and checking messages, marks
//	short.go         receiver: messages of one block, with one check
//	core.go          Envelope, Result, Stats; state shared by sender and receiver
//	setup.go         Setup, the blob that peers exchange
//	options.go       Options, modes, defaults
//	layout.go        cells, trailer, the split of a message into blocks
//	words_unsafe.go  atomic loads of cells and trailers
//	resize.go        replacing a ring: what is sent, allocated and withdrawn
//	resize_reader.go what the peer sends about rings
//	resize_state.go  the state of both directions; rings and mirrors
//	budget.go        Budget: the memory of rings after the first ones
//	errors.go        errors
//
// Tests are beside the code, over fabric/sim; script_test.go compares random scripts with a
// plain queue, hostile_test.go implements a hostile peer, links_test.go and ibv_test.go run
// over shm, tcp and ibv, bench_test.go measures.
package eager
