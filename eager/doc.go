// Package eager carries messages over one-sided writes: a circular buffer of
// blocks in the receiver's registered memory, filled by the sender with remote
// writes, polled by the receiver, with credit returned by remote writes as
// well. It runs over any fabric link and never posts a receive.
//
// The package is a part of the engine below package rma. Applications use rma; what
// is exported here may change in any release.
//
// A [Channel] joins two peers and holds both directions, a sender and a receiver. A
// [Set] makes channels for the peers that talk often and bounds their number and
// memory.
//
// # Memory
//
// Each side owns one region that the peer writes to: two cells on lines of
// their own, then the ring of the incoming direction. The sender keeps a
// mirror of the peer's ring, slot for slot, as the source of its writes.
//
//	offset   0  write cursor of the peer (ModeCursor only)   written by the peer
//	offset 128  credit word for our outgoing direction       written by the peer
//	offset 256  block 0, block 1, ... block N-1              written by the peer
//
// The payload of a message stands against an 8-byte trailer at the fixed end
// of its block, so that one write covers both and its last word is the trailer:
//
//	| unused ... | payload | 0-7 zeros | meta (optional, 8) | trailer (8) |
//	                                                        ^ polled by the reader
//
// The trailer carries a 16-bit lap number. A message that is longer than a block
// has one trailer all the same, in its first block; what does not fit before it is
// the run, the memory of the blocks behind, without a gap:
//
//	| unused | payload | meta | trailer |  payload, over blocks p+1 ... p+k-1  |
//	  block p                              run: at most cut where the ring ends
//
// A gather of a hundred messages is then two writes with one list of pieces
// each, a megabyte is copied in two moves, and small blocks cost long messages
// next to nothing. The price: payload stands where trailers of the next lap will
// be looked for. So the reader, when it gives the blocks of a run back, puts a mark
// where their trailers would have been: a trailer of this lap, of no message. The
// credit that lets the writer come again is posted behind those stores. Hence the
// invariant of mode lap: the word which the reader polls is that of this lap, or
// a trailer or mark of the last; any other value is a corruption. Nothing else is
// ever written by the reader. docs/wire.md has the bytes.
//
// # When a message is visible
//
// ModeLap (default where Caps.LastByteLast): the trailer is the last word of
// its write. The link promises that for the last word only, so a message of
// several blocks goes out as its run first and its first block last, in a write
// of its own: a reader that sees the trailer sees the whole message, because writes of an
// endpoint become visible in order. Blocks of a run are not polled before the run
// has been consumed, and marked, so that what lies there never matters.
//
// ModeCursor (default elsewhere): all in one write (two at the end of the ring),
// then the position behind it as a second write to the cursor cell, in the same
// Post. Several messages staged together share that write. The reader looks at
// trailers only where the cursor says that there is one; it makes no marks.
//
// More writes than that only where a list of pieces is longer than the link takes
// ([Channel.StageVec]); their order is the same.
//
// # In place
//
// [Channel.StageVec] takes one message made of pieces, of which some are copied to
// the mirror, as always, and some read by the link where they lie. The mirror is
// also the staging area: copied neighbours lie side by side in it and share one
// SGE. Pieces in place are the link's until [Channel.Done]. Package gather makes
// such pieces of batches, and [Lease.Split] takes gathers apart.
//
// Both modes, and credit, assume of every link that an aligned 8-byte write is
// seen whole or not at all.
//
// # Credit, completions, queue
//
// flowctl does the counting. Credit goes back after Options.Every consumed
// blocks (half a ring), or with reverse traffic once half of that is owed. Writes
// are unsignalled but for one in a quarter ring or a quarter queue. Out of credit
// and queue full are values ([NoCredit], [QueueFull]), not errors. Messages of
// class flowctl.Control find room where data does not; read the rule about
// consuming in flowctl.
//
// # Sleeping readers
//
// Where Caps.WakesOnWrite is false, a reader that wants to sleep sets a bit in
// the word it writes to the peer ([Channel.Sleep]); a sender that has seen the bit
// asks for a notification with the last write of every flush, data and credit
// alike, until the bit is cleared. Writes already under way when the bit is set do not
// notify. The reader therefore, after Sleep(true) and Link.Arm, looks at its
// rings once more and then sleeps with the time-outs of [Nap]: short, doubling,
// so that a message that was on its way for a time d is seen after about 2·d at
// the latest.
//
// # Hostile peers
//
// The peer can write anything into the region at any time. Every word is loaded
// once, checked, and the checked value used; nothing outside the ring is read
// or written whatever it says. What cannot be true ends this channel with an
// error that wraps [ErrCorrupt] (blocks) or a flowctl.CursorError (cells); the link,
// the endpoint and other channels are not touched. Payload bytes may change
// while a [Lease] is open: copy (Recv) what must not.
//
// # Ownership
//
// A channel belongs to the goroutine that owns the link's Poll. It hands the
// completions of the channel's endpoint to OnCompletion.
//
// # Imports and files
//
// Imports fabric, flowctl, gather and internal/offheap.
//
//	channel.go       Channel: open, connect, receive, progress, completions, close
//	sleep.go         sleep bit and Nap
//	lease.go         Lease: access in place; a gather opened in place
//	vec.go           sender: messages of pieces, some in place
//	send.go          sender: copied messages, messages that the caller composes; SendShort:
//	                 one message through the peer's memory, without requests
//	flush.go         sender: posting, credit, notifications
//	compose.go       sender: a message in the mirror, the requests that write it; Room: where
//	                 a composed message is written
//	recv.go          receiver: finding, checking, marks
//	core.go          Envelope, Result, Stats; what sender and receiver share
//	setup.go         Setup, the blob peers exchange
//	options.go       Options, modes, defaults
//	layout.go        cells, trailer, how a message splits into blocks
//	words_*.go       atomic loads of cells and trailers
//	set.go           Set: lazily made, bounded channels
//	errors.go        errors
//
// Tests are beside the code, over fabric/sim; script_test.go compares random
// scripts with a plain queue, hostile_test.go plays a bad peer, links_test.go and
// ibv_test.go run over shm, tcp and ibv, bench_test.go measures.
package eager
