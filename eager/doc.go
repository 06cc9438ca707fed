// Package eager carries messages over one-sided writes: a circular buffer of
// blocks in the receiver's registered memory, filled by the sender with remote
// writes, polled by the receiver, with credit returned by remote writes as
// well. It runs over any fabric link and never posts a receive.
//
// A [Channel] joins two peers and holds both directions. A [Set] makes channels
// for the peers that talk often and bounds their number and memory.
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
// The trailer carries a 16-bit lap number. Every block is written in every lap,
// and always with a trailer there, so the word the reader finds is that of this
// lap or that of the last; nothing is ever zeroed, and any other value is a
// corruption. docs/wire.md has the bytes.
//
// # When a message is visible
//
// ModeLap (default where Caps.LastByteLast): the trailer is the last word of
// its write. The link promises that for the last word only, so a message of
// several blocks goes out as blocks 1..k-1 first and block 0 last, in a write
// of its own: who sees the trailer of block 0 sees the whole message, because
// writes of an endpoint become visible in order. Inner trailers are never
// polled; they are checked once the message is there.
//
// ModeCursor (default elsewhere): all blocks in one write (two at the end of
// the ring), then the position behind them as a second write to the cursor
// cell, in the same Post. Several messages staged together share that write.
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
// Imports fabric, flowctl and internal/offheap.
//
//	options.go       Options, modes, defaults
//	setup.go         Setup, the blob peers exchange
//	layout.go        cells, trailer, how a message splits into blocks
//	words_*.go       atomic loads of cells and trailers
//	channel.go       Channel: open, connect, completions, close
//	send.go          staging and posting
//	recv.go          finding, checking, copying
//	lease.go         Lease: access in place
//	sleep.go         sleep bit and Nap
//	set.go           Set: lazily made, bounded channels
//	errors.go        errors
//
// Tests are beside the code, over fabric/sim; script_test.go compares random
// scripts with a plain queue, hostile_test.go plays a bad peer, links_test.go and
// ibv_test.go run over shm, tcp and ibv, bench_test.go measures.
package eager
