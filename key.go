package rma

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
)

// maxLinks bounds the kinds of link; the number of a kind is part of the wire
// format of keys.
const maxLinks = 4

// linkNumber is the number of a kind of link in keys: append only.
var linkNumber = map[string]uint8{"shm": 0, "ibv": 1, "tcp": 2, "sim": 3}

// Key names a region of a peer: all that is needed to reach it. It is a value,
// of a fixed size when marshalled.
type Key struct {
	addr, length uint64
	has          uint8 // bit n: rkeys[n] is set
	rkeys        [maxLinks]uint32
}

// KeySize is the size of a marshalled Key in bytes: address (8), length (8),
// links (1), then a key (4) for each of the 4 kinds of link; little-endian.
const KeySize = 8 + 8 + 1 + 4*maxLinks

// Len is the size of the region in bytes.
func (k Key) Len() uint64 { return k.length }

// At is the place off bytes into the region.
func (k *Key) At(off uint64) Remote { return Remote{key: k, off: off} }

// Remote is a place in a peer's memory.
type Remote struct {
	key *Key
	off uint64
}

// Append appends the marshalled key to b.
func (k *Key) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, k.addr)
	b = binary.LittleEndian.AppendUint64(b, k.length)
	b = append(b, k.has)
	for _, r := range k.rkeys {
		b = binary.LittleEndian.AppendUint32(b, r)
	}
	return b
}

// ParseKey reads a key that Append made. It is a peer's claim: only the target
// decides whether it is valid. Errors wrap ErrBadKey.
func ParseKey(b []byte) (k Key, err error) {
	if len(b) != KeySize {
		return k, fmt.Errorf("rma: %w: %d bytes, want %d", ErrBadKey, len(b), KeySize)
	}
	k.addr = binary.LittleEndian.Uint64(b)
	k.length = binary.LittleEndian.Uint64(b[8:])
	k.has = b[16]
	if k.length > math.MaxUint64-k.addr || k.has>>maxLinks != 0 {
		return Key{}, fmt.Errorf("rma: %w: address %#x, length %#x, links %#x", ErrBadKey, k.addr, k.length, k.has)
	}
	for i := range k.rkeys {
		k.rkeys[i] = binary.LittleEndian.Uint32(b[17+4*i:])
		if k.has>>i&1 == 0 && k.rkeys[i] != 0 {
			return Key{}, fmt.Errorf("rma: %w: key for a link that it does not have", ErrBadKey)
		}
	}
	return k, nil
}

// AllGatherKeys exchanges the keys of one region of each rank and returns them
// by rank. All ranks must call it, in the same order if there are several.
func AllGatherKeys(ctx context.Context, e *Engine, mem *Region) ([]Key, error) {
	k := mem.Key()
	all, err := e.job.AllGather(ctx, "rma/keys", k.Append(nil))
	if err != nil {
		return nil, fmt.Errorf("rma: exchange keys: %w", err)
	}
	keys := make([]Key, len(all))
	for r, b := range all {
		if keys[r], err = ParseKey(b); err != nil {
			return nil, fmt.Errorf("rma: exchange keys: from rank %d: %w", r, err)
		}
	}
	return keys, nil
}
