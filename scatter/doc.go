// Package scatter plans receiver-driven transfers of a batch: a descriptor contains the
// places of the messages in the sender's memory, and a plan of remote reads places each of
// them at its destination. It is pure: it posts nothing, waits for nothing and accesses
// only memory that it is given.
//
// The package is a part of the engine below package rma. Applications use rma; the exported
// names may change in any release.
//
// # Descriptor
//
// A batch is a stream: the concatenated bytes of its messages. A [Descriptor] divides that
// stream twice: into messages (size and sequence number), and into
// contiguous runs of registered source memory (address, length, remote key). The divisions
// are independent: a message may span regions, and adjacent messages may share one.
// docs/wire.md defines the bytes.
//
// Only one order is legal on the wire: messages by rising sequence number. Sources may
// overlap, which is harmless for reads.
//
// # Plan
//
// A [Plan] iterates over the source regions and the local pieces in parallel and produces
// work requests. Each names one contiguous remote run and as many local pieces as fit;
// [Limits] bounds pieces, bytes and requests in flight. Adjacent runs, remote or local, are
// merged. The same plan serves writes from local pieces to remote runs.
//
// # Hostile peers
//
// [Descriptor.Parse] does not trust its input: it compares counts with the receiver's
// bounds before it reads anything else; sizes must add up on both sides, and addresses must
// not wrap. Errors are [*DescriptorError] and wrap one sentinel each. The link of the peer
// checks, by the key, that the peer may grant access to a region.
//
// # Concurrency and memory
//
// No value of this package is safe for concurrent use. Parse and Append allocate only if
// the slices they are given are too short; Plan never does.
//
// # Imports and files
//
// Imports fabric.
//
//	descriptor.go  Descriptor, Append, Parse; the validity of a descriptor; errors
//	plan.go        Plan
package scatter
