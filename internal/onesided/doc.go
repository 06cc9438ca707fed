// Package onesided implements one-sided operations that take more than one request to a
// link: lists of pieces and strided shapes become work requests, atomics that no adapter
// implements become loops, and the target's progress engine executes accumulates. It posts
// nothing and waits for nothing; its callers do.
//
// # Pieces
//
// A [Cursor] iterates over two sides in step: local memory and remote memory, each a list of
// pieces or a [Shape]. [Cursor.Next] returns the next work request: one contiguous remote
// range and the local pieces that it maps to, as long as the link and the room for pieces
// allow. Nothing is expanded in advance: a shape of millions of runs takes no memory. A
// [Mark] is a position of the cursor, to return to when a link took only some of the
// requests.
//
// # Atomics
//
// Links add to and compare-and-swap 8-byte words. [RMW] is any other atomic: a function
// from the word's old value to its new one, for a loop of compare-and-swaps. Atomics of 4
// bytes change half of the aligned word.
//
// # Accumulates
//
// A [Request] is the data that the initiator writes into the target's memory, header and
// elements; [Serve] executes it, element by element with compare-and-swaps of the processor,
// or, if it is [Exclusive], with plain loads and stores.
// docs/wire.md defines the bytes.
//
// # Groups
//
// A [Grouper] makes one request of many puts, gets or accumulates of a Cursor: gathers with
// the destination of each piece, or lists of the requested pieces. A [Server] executes it if
// the keys permit that, in order, and stops at the first entry that is refused.
//
// # Concurrency
//
// No globals; each value is for one goroutine at a time.
//
// # Files
//
//	shape.go          Shape, Dim: checks, extent, overlap
//	side.go           iteration over one side; cursor.go both sides in step
//	nest.go           a shape as loops: copied at once if both sides are mapped
//	word.go           atomics as functions of a word, conditions on words; word_unsafe.go
//	                  words that peers write
//	request.go        the header of an accumulate, and its execution
//	group.go          many puts, gets or accumulates in one request: encoding and execution
//	reduce.go         kernels by type and operation; exclusive.go those that are not atomic
//
// It imports fabric, gather, mr, internal/cpu and internal/offheap.
package onesided
