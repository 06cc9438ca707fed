// Package gather puts many messages into one write and takes them apart again:
// a header that names the segments, the messages behind it, in place where they
// lie in registered memory and copied where they are small or do not.
//
// The package is a part of the engine below package rma. Applications use rma; what
// is exported here may change in any release.
//
// It posts nothing. What carries a gather is one message of a channel (package
// eager); this package makes its pieces and reads its payload:
//
//	sender                                         receiver
//	messages                                       payload, in place
//	   │ Packer: header, what is copied, cuts         ▲ Splitter: checked header,
//	   ▼                                              │ then segment by segment
//	[]Piece ──► List: SGEs over a staging window ──► one write
//
// # Header
//
// Two kinds, [Seq] (size and sequence number) and [Dest] (size, region and
// offset of the destination). Which one, and the version, is the kind of the
// message that carries it; the header does not say. Fields are as wide as the
// largest value of the gather needs, 1 to 4 or 8 bytes, the same for all entries:
// 64 messages of 64 bytes with consecutive numbers take 16 + 64·1 bytes. Places
// are coded as the gap behind the entry before, so that sequence numbers which do
// not ascend and destinations that overlap cannot be expressed. docs/wire.md has
// the bytes.
//
// In the cost model h·n + c is the length of the header.
//
// # In place or copied
//
// A piece of its own costs the link an SGE: on a device a descriptor of 16 bytes
// and a read of its own over the bus, on the others a turn of a loop. Copying
// costs the bytes. [DefaultThreshold] is where the two meet. Copied pieces that are
// neighbours share one SGE, because they are copied to where they will lie at the
// target: the staging window is a mirror of the destination.
//
// # Ownership
//
// Memory taken in place belongs to the link until the completion of the request
// that reads it; the channel's token says when. What Packer.Pieces returns is
// valid until the next Pack. A [Splitter] reads the payload where it lies; it is
// bound to the lease and fails with [ErrReleased] when that has ended.
//
// # Hostile peers
//
// [Header.Parse] copies the header first and checks the copy, so that a peer which
// changes it later changes nothing. Every error wraps [ErrHeader] or
// [ErrDestination]; nothing is written before all destinations of a gather have
// been checked.
//
// # Concurrency
//
// Nothing here is for concurrent use. Nothing allocates once its buffers have
// grown to the largest gather seen.
//
// # Imports and files
//
// Imports fabric.
//
//	entry.go   Kind, Entry, limits, errors
//	header.go  widths of fields, writing
//	parse.go   Header: parse, check, iterate
//	piece.go   Piece, List: pieces to SGEs over a staging window
//	run.go     runs: headers written without entries, segments read many in one go
//	pack.go    Packer: a batch to gathers
//	split.go   Splitter: a payload to segments, in place, copied or scattered
//
// Tests are beside the code; those with a link under it are in package eager.
package gather
