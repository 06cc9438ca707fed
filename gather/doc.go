// Package gather packs many messages into one write and splits them again: a header that
// describes the segments, then the messages, in place if they lie in registered memory,
// copied if they are small or do not.
//
// The package is a part of the engine below package rma. Applications use rma; the exported
// names may change in any release.
//
// It posts nothing. A gather is sent as one message of a channel (package eager); this
// package creates its pieces and parses its payload:
//
//	sender                                         receiver
//	messages                                       payload, in place
//	   │ Packer: header, copied data, cuts            ▲ Splitter: checked header,
//	   ▼                                              │ then segment by segment
//	[]Piece ──► List: SGEs over a staging window ──► one write
//
// # Header
//
// Two kinds, [Seq] (size and sequence number), of messages, and [Dest] (size, region and
// offset of the destination), of lists. The kind of the message that carries the header gives its kind and version;
// the header does not. Fields are as wide as the largest value of the gather needs, 1 to 4
// or 8 bytes, the same for all entries: 64 messages of 64 bytes with consecutive numbers
// take 16 + 64·1 bytes. Places are coded as the gap behind the previous entry, so that
// descending sequence numbers and overlapping destinations cannot be expressed. docs/wire.md
// defines the bytes.
//
// In the cost model h·n + c is the length of the header.
//
// # In place or copied
//
// A separate piece costs the link an SGE: on a device a descriptor of 16 bytes and a
// separate read over the bus, on other links an iteration of a loop. A copy costs per byte.
// [DefaultThreshold] is the size at which both cost the same. Adjacent copied pieces share
// one SGE, because they are copied to the layout that they will have at the target: the
// staging window is a mirror of the destination.
//
// # Ownership
//
// Memory taken in place belongs to the link until the completion of the request that reads
// it, which the channel's token identifies. The result of Packer.Pieces is valid until the
// next Pack. A [Splitter] reads the payload in place; it is bound to the lease and fails
// with [ErrReleased] when that has ended.
//
// # Hostile peers
//
// [Header.Parse] copies the header first and checks the copy, so that later changes by the
// peer have no effect. Every error wraps [ErrHeader].
//
// # Concurrency
//
// No type is safe for concurrent use. Nothing allocates once its buffers have grown to the
// largest gather seen.
//
// # Imports and files
//
//	entry.go   Kind, Entry, limits, errors
//	header.go  widths of fields, encoding
//	parse.go   Header: parse, check, iterate
//	list.go    headers without segments
//	piece.go   Piece, List: pieces to SGEs over a staging window
//	run.go     runs: headers written without entries, many segments read at a time
//	pack.go    Packer: a batch to gathers
//	split.go   Splitter: a payload to segments, in place or copied
//
// Tests that need a link are in package eager.
package gather
