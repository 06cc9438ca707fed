// Package flowctl keeps the cursors and credits of a circular buffer of
// blocks whose two ends share no memory: the writer of the ring at one side of
// a link, the reader at the other. It is pure arithmetic: it touches no ring
// memory, sends nothing, allocates nothing and imports nothing of the project.
//
// The package is a part of the engine below package rma. Applications use rma; what
// is exported here may change in any release.
//
// # Cursors
//
// All positions are 64-bit block counts since the ring was made; block p lives
// in slot p mod Blocks and belongs to lap p / Blocks. Only differences are
// ever compared, so even a wrap after 2^64 blocks would do no harm.
//
//	reader:  returned <= next                         next: blocks consumed
//	writer:  credit   <= head   done <= head          head: blocks reserved
//
//	credit <= returned <= next <= blocks arrived <= head <= min(credit, done) + Blocks
//
// The writer may fill a block when the reader has returned its credit (the
// remote block is free) and the local write of its previous lap is complete
// (the staging copy of the block is free). Those are [Sender.Apply] and
// [Sender.Complete]; [Sender.Reserve] honours both.
//
// # Credits
//
// The reader returns credit as one word: its cursor, shifted left by one, with
// the sleep bit below. It does so after [Geometry.Every] blocks, earlier when
// it writes to the peer anyway, or when told. Coalescing must not starve the
// writer: up to Every-1 consumed blocks may stay unreturned for ever, so a run
// longer than [Geometry.MaxRun] is refused rather than waited for.
//
// # Control
//
// The last [Geometry.Control] free blocks are given to [Control] runs only, so
// that a FIN or a rendezvous descriptor finds room in a ring that data has
// filled. The reserve holds a bounded number of control blocks, and the ring is
// one queue: control waits for data in front of it to be consumed. Hence the
// rule for users: consuming must never wait for sending (keep the answer and
// consume on). Credits do not travel in blocks and are always possible.
//
// # Hostile peers
//
// Every word a peer writes is checked before use ([Sender.Apply],
// [Receiver.Arrived]): a cursor that moves back or claims what was never sent
// is a [*CursorError], and leaves the state as it was.
//
// # Files and tests
//
// flowctl.go has Geometry (sizes, and what follows from them), Sender (reserve, credit,
// completion), Receiver (consume, when to return credit, sleep bit) and CursorError.
// model_test.go explores every interleaving of writer, reader and network for
// small rings and checks the invariants above in every state; reply_test.go does
// so for two peers that answer each other, sleep_test.go for a reader that
// sleeps.
package flowctl
