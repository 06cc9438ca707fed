// Package flowctl keeps the cursors and credits of a circular buffer of blocks whose two
// ends share no memory: the writer at one side of a link, the reader at the other. It is
// pure arithmetic: it accesses no ring memory, sends nothing, allocates nothing and imports
// no package of the module.
//
// The package is a part of the engine below package rma. Applications use rma; the exported
// names may change in any release.
//
// # Cursors
//
// All positions are 64-bit block counts since the creation of the ring; block p is in slot p
// mod Blocks and belongs to lap p / Blocks. Only differences are compared, so a wrap after
// 2^64 blocks is harmless.
//
//	reader:  returned <= next                         next: blocks consumed
//	writer:  credit   <= head   done <= head          head: blocks reserved
//
//	credit <= returned <= next <= blocks arrived <= head <= min(credit, done) + Blocks
//
// The writer may fill a block when the reader has returned its credit (the remote block is
// free) and the local write of its previous lap is complete (the staging copy of the block
// is free). [Sender.Apply] and [Sender.Complete] record these events; [Sender.Reserve]
// honours both.
//
// # Credits
//
// The reader returns credit as one word: its cursor, shifted left by one, with the sleep bit
// below. It does so after [Geometry.Every] blocks, earlier when it writes to the peer
// anyway, or on request. Coalescing must not starve the writer: up to Every-1 consumed
// blocks may stay unreturned for ever, so a run longer than [Geometry.MaxRun] is refused at
// once. A block that is consumed in part, and that the writer may append to, counts as one of them
// when credit is due ([Receiver.Part]); it is returned with the next one.
//
// # Control
//
// The last [Geometry.Control] free blocks are reserved for [Control] runs, so that a FIN or
// a rendezvous descriptor finds room in a ring that data has filled. The reserve holds a
// bounded number of control blocks, and the ring is one queue: control waits until the data
// in front of it is consumed. Hence the rule for users: consuming must never wait for
// sending (store the answer and continue to consume). Credits do not travel in blocks and
// are always possible.
//
// # Hostile peers
//
// Every word a peer writes is checked before use ([Sender.Apply], [Receiver.Arrived]): a
// cursor that moves back or beyond the blocks sent is a [*CursorError], and leaves the
// state unchanged.
//
// # Files and tests
//
// flowctl.go has Geometry (sizes and derived values), Sender (reserve, credit, completion),
// Receiver (consume, credit to return, sleep bit) and CursorError. model_test.go explores
// every interleaving of writer, reader and network for small rings and checks the
// invariants above in every state; reply_test.go does so for two peers that answer each
// other, sleep_test.go for a reader that sleeps.
package flowctl
