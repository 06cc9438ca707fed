// Package scatter is the receiver-driven way of moving a batch: a descriptor
// that says where the messages lie in the sender's memory, and the plan of the
// remote reads that drop each of them into its final place. Pure: it posts
// nothing, waits for nothing and touches no memory but what it is given.
//
// The package is a part of the engine below package rma. Applications use rma; what
// is exported here may change in any release.
//
// # Descriptor
//
// A batch is a stream: the bytes of its messages one behind the other. A
// [Descriptor] cuts that stream twice, once into messages (size, and sequence
// number or destination offset) and once into contiguous runs of registered
// source memory (address, length, remote key). The cuts are independent: a
// message may span regions, and neighbouring messages may share one.
// docs/wire.md has the bytes.
//
// One order is legal on the wire: messages by rising sequence number, or by
// rising offset without overlap. Sequence numbers that occur twice and
// destinations that overlap are thereby found in one pass without memory.
// Sources may overlap: reading twice does no harm.
//
// # Plan
//
// A [Plan] walks the source regions and the local pieces side by side and hands
// out work requests. Each names one contiguous remote run and as many local
// pieces as fit it; [Limits] bounds pieces, bytes and requests in flight. Neighbours
// that touch, remote or local, are merged. The same walk serves writes from
// local pieces to remote runs.
//
// # Hostile peers
//
// [Descriptor.Parse] believes nothing: counts are compared with the receiver's
// bounds before anything is read, sizes must add up on both sides, addresses
// must not wrap. Errors are [*DescriptorError] and wrap one sentinel each. That
// a region is really the peer's to give is for its link to check, with the key.
//
// # Concurrency and memory
//
// No value of this package is safe for concurrent use. Parse and Append
// allocate only where the slices they are given are too short; Plan never does.
//
// # Imports and files
//
// Imports fabric.
//
//	descriptor.go  Descriptor, Append, Parse
//	check.go       what makes a descriptor legal
//	errors.go      errors
//	plan.go        Plan
package scatter
