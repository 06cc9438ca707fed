package fabric

import (
	"encoding/binary"
	"fmt"
	"math"
)

// RemoteKey names a region of a peer; a request needs nothing else to access it.
type RemoteKey struct {
	Addr uint64 // address of the first byte
	Len  uint64 // bytes
	RKey uint32
}

// RemoteKeySize is the size of a marshalled RemoteKey in bytes:
// address (8), length (8), key (4), all little-endian.
const RemoteKeySize = 20

// Append appends the marshalled key to b.
func (k RemoteKey) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, k.Addr)
	b = binary.LittleEndian.AppendUint64(b, k.Len)
	return binary.LittleEndian.AppendUint32(b, k.RKey)
}

// ParseRemoteKey parses a key at the front of b and returns the rest. It does not verify
// the key: only the target decides whether it is valid.
func ParseRemoteKey(b []byte) (k RemoteKey, rest []byte, err error) {
	if len(b) < RemoteKeySize {
		return k, b, fmt.Errorf("%w: %d bytes, want %d", ErrBadKey, len(b), RemoteKeySize)
	}
	k.Addr = binary.LittleEndian.Uint64(b)
	k.Len = binary.LittleEndian.Uint64(b[8:])
	k.RKey = binary.LittleEndian.Uint32(b[16:])
	if k.Len > math.MaxUint64-k.Addr {
		return RemoteKey{}, b, fmt.Errorf("%w: address %#x + length %#x wraps", ErrBadKey, k.Addr, k.Len)
	}
	return k, b[RemoteKeySize:], nil
}
