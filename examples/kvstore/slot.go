package main

import (
	"bytes"
	"encoding/binary"
	"hash/crc64"
)

// A slot holds a key and its value:
//
//	 0  checksum of all that follows, as far as it is used
//	 8  version: grows with every change of the shard
//	16  length of the key, 2 bytes; of the value, 2 bytes
//	20  1, or 0 if it was deleted
//	24  key, value
//
// Numbers are little-endian. A slot that was never used is zero.
const (
	slotSize  = 128
	slotHead  = 24
	maxRoom   = slotSize - slotHead // key and value together
	liveState = 1
)

// entry is what a slot says.
type entry struct {
	version    uint64
	live       bool
	key, value []byte // memory of the slot, or of whoever wrote it
}

// condition is what a reader finds a slot in.
type condition int

const (
	free  condition = iota // never used
	whole                  // as somebody wrote it
	torn                   // in part from before a write and in part from after it
)

var polynomial = crc64.MakeTable(crc64.ECMA)

// encode writes e to a slot, by one copy, and zeroes what was there.
//
// Readers may fetch the slot meanwhile, in any order of its bytes: neither stores nor
// adapters promise one (docs/memory-model.md), so that versions around the data, as a
// seqlock has them, would prove nothing. A checksum does, whatever the order: two entries mixed
// pass for one with a probability of 2⁻⁶⁴.
func (e entry) encode(slot []byte) {
	var b [slotSize]byte
	binary.LittleEndian.PutUint64(b[8:], e.version)
	binary.LittleEndian.PutUint16(b[16:], uint16(len(e.key)))
	binary.LittleEndian.PutUint16(b[18:], uint16(len(e.value)))
	if e.live {
		b[20] = liveState
	}
	n := slotHead + copy(b[slotHead:], e.key)
	n += copy(b[n:], e.value)
	binary.LittleEndian.PutUint64(b[:], crc64.Checksum(b[8:n], polynomial))
	copy(slot, b[:])
}

// decode looks at a copy of a slot. Nothing in it is believed before the checksum.
func decode(slot []byte) (entry, condition) {
	slot = slot[:slotSize]
	if [slotHead]byte(slot) == [slotHead]byte{} {
		return entry{}, free
	}
	key, value := int(binary.LittleEndian.Uint16(slot[16:])), int(binary.LittleEndian.Uint16(slot[18:]))
	end := slotHead + key + value
	if end > slotSize || crc64.Checksum(slot[8:end], polynomial) != binary.LittleEndian.Uint64(slot) {
		return entry{}, torn
	}
	return entry{
		version: binary.LittleEndian.Uint64(slot[8:]), live: slot[20] == liveState,
		key: slot[slotHead : slotHead+key], value: slot[slotHead+key : end],
	}, whole
}

// outcome is what a search of one bucket came to.
type outcome int

const (
	found     outcome = iota
	absent            // a slot is free: neither here nor in later buckets
	elsewhere         // in a later bucket, if at all
	unclear           // a slot is being written: look again
)

// search looks for a key in a copy of a bucket. What it finds is memory of the copy.
func search(bucket, key []byte) (entry, outcome) {
	result := elsewhere
	for i := range slots {
		e, c := decode(bucket[i*slotSize:])
		switch {
		case c == torn:
			result = unclear
		case c == free && result == elsewhere:
			result = absent
		case c == whole && e.live && bytes.Equal(e.key, key):
			return e, found
		}
	}
	return entry{}, result
}
