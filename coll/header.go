package coll

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"strings"

	"github.com/seed33544411/rma"
)

// Tags of the messages of this package; docs/wire.md has the layouts.
const (
	tagData    = rma.LibraryTags | 0x43<<24 // low 24 bits: the receiver's number of the team
	tagPayload = rma.LibraryTags | 0x45<<24 // low 24 bits: the sender's number of the payload
	tagControl = rma.LibraryTags | 0x46<<24
	lowBits    = 1<<24 - 1
)

const (
	headerSize = 40
	version    = 6
	maxElement = 1<<16 - 1
	maxCount   = 1<<48 - 1
	maxSlot    = 1<<24 - 1

	inquirySlot = maxSlot // of a message about an operation: see board.inquire
)

// kind is the operation of a call.
type kind uint8

const (
	kindBarrier kind = iota + 1
	kindBcast
	kindReduce
	kindAllreduce
	kindReduceScatter
	kindReduceScatterv
	kindGather
	kindGatherv
	kindScatter
	kindScatterv
	kindAllgather
	kindAllgatherv
	kindAlltoall
	kindAlltoallv
	kindScan
	kindExscan
	numKinds
)

var kindNames = [numKinds]string{"", "Barrier", "Bcast", "Reduce", "Allreduce", "ReduceScatter", "ReduceScatterv", "Gather", "Gatherv",
	"Scatter", "Scatterv", "Allgather", "Allgatherv", "Alltoall", "Alltoallv", "Scan", "Exscan"}

func (k kind) String() string { return kindNames[k] }

// rooted reports whether the operation has a root.
func (k kind) rooted() bool {
	switch k {
	case kindBcast, kindReduce, kindGather, kindGatherv, kindScatter, kindScatterv:
		return true
	}
	return false
}

// meets reports whether no rank completes the operation before all have started it.
func (k kind) meets() bool {
	switch k {
	case kindBarrier:
		return true
	case kindAllreduce, kindReduceScatter, kindAllgather, kindAlltoall:
		return true // messages without data are sent, too
	}
	return false
}

// call is what all ranks of a team have to agree on in an operation.
type call struct {
	kind  kind
	op    uint8        // of reductions
	elem  reflect.Kind // of the elements
	alg   algorithm
	size  uint16 // of an element
	root  uint32
	count uint64 // elements; 0 for operations in which it differs between ranks
}

// String describes the call in the words of its interface.
func (c call) String() string {
	if c.kind == 0 { // a reason that was not valid
		return "an unknown call"
	}
	var b strings.Builder
	b.WriteString(c.kind.String())
	if c.kind != kindBarrier {
		if c.kind == kindReduceScatterv || !strings.HasSuffix(c.kind.String(), "v") {
			fmt.Fprintf(&b, " of %d", c.count)
		}
		fmt.Fprintf(&b, " %v (%d bytes each)", c.elem, c.size)
	}
	if c.op != opNone {
		fmt.Fprintf(&b, " by %s", opNames[c.op])
	}
	if c.kind.rooted() {
		fmt.Fprintf(&b, " with root %d", c.root)
	}
	fmt.Fprintf(&b, ", algorithm %v", c.alg)
	return b.String()
}

// put writes the call as 16 bytes.
func (c call) put(b []byte) {
	first, second := c.words()
	binary.LittleEndian.PutUint64(b, first)
	binary.LittleEndian.PutUint64(b[8:], second)
}

// words returns what put writes.
func (c *call) words() (first, second uint64) {
	return uint64(c.kind) | uint64(c.op)<<8 | uint64(c.elem)&0xff<<16 | uint64(c.alg)<<24 | uint64(c.root)<<32, c.count | uint64(c.size)<<48
}

// is reports whether put has written c to b.
func (c *call) is(b []byte) bool {
	first, second := c.words()
	return binary.LittleEndian.Uint64(b) == first && binary.LittleEndian.Uint64(b[8:]) == second
}

// parseCall is the inverse of put.
func parseCall(b []byte) (c call, ok bool) {
	c = call{kind: kind(b[0]), op: b[1], elem: reflect.Kind(b[2]), alg: algorithm(b[3]), root: binary.LittleEndian.Uint32(b[4:])}
	n := binary.LittleEndian.Uint64(b[8:])
	c.count, c.size = n&maxCount, uint16(n>>48)
	return c, c.kind > 0 && c.kind < numKinds && c.op < numOps && c.elem <= reflect.UnsafePointer && c.alg < numAlgorithms
}

// header begins each message of an operation.
type header struct {
	tag   uint32 // of the operation: Team.Tag
	seq   uint32 // number of the operation among those of the team and tag
	slot  uint32 // number of the message among those of its sender to its receiver in the operation
	later uint32 // 0: the data follows; else the low bits of the tag of another message with the data
	call  call
	bytes uint64 // of data
}

// put writes the header to the first headerSize bytes of b.
func (h *header) put(b []byte) {
	binary.LittleEndian.PutUint32(b[0:], h.tag)
	binary.LittleEndian.PutUint32(b[4:], h.seq)
	binary.LittleEndian.PutUint32(b[8:], h.slot|version<<24)
	binary.LittleEndian.PutUint32(b[12:], h.later)
	h.call.put(b[16:])
	binary.LittleEndian.PutUint64(b[32:], h.bytes)
}

// parseHeader is the inverse of put. n is the length of the message.
func parseHeader(b []byte, n int) (h header, ok bool) {
	if len(b) < headerSize || n < headerSize {
		return h, false
	}
	h.tag = binary.LittleEndian.Uint32(b[0:])
	h.seq = binary.LittleEndian.Uint32(b[4:])
	h.slot = binary.LittleEndian.Uint32(b[8:])
	h.later = binary.LittleEndian.Uint32(b[12:])
	h.call, ok = parseCall(b[16:])
	h.bytes = binary.LittleEndian.Uint64(b[32:])
	ok = ok && h.slot>>24 == version && h.later <= lowBits
	h.slot &= maxSlot
	if h.later == 0 {
		ok = ok && h.bytes == uint64(n-headerSize)
	} else {
		ok = ok && n == headerSize
	}
	return h, ok
}
