package shm

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/seed33544411/rma/fabric"
)

// address is the content of Endpoint.Address: where to connect, and the proof of having
// received the address. Every user of the host can see the socket's name (/proc/net/unix),
// but not the token.
type address struct {
	host  [16]byte // boot id: processes of other hosts or boots cannot share memory
	name  [16]byte // random part of the abstract socket's name
	token [16]byte // secret; proves that the peer received this address
}

const (
	addressMagic   = 0x73616d72 // "rmas"
	addressVersion = 2
	addressSize    = 8 + 48 + 4
)

// append appends the encoded address: magic (4), version (4), host (16), name (16), token
// (16), CRC-32 of these (4), little-endian.
func (a *address) append(b []byte) []byte {
	start := len(b)
	b = binary.LittleEndian.AppendUint32(b, addressMagic)
	b = binary.LittleEndian.AppendUint32(b, addressVersion)
	b = append(b, a.host[:]...)
	b = append(b, a.name[:]...)
	b = append(b, a.token[:]...)
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b[start:]))
}

// parseAddress decodes b, which must be exactly one address.
func parseAddress(b []byte) (a address, err error) {
	if len(b) != addressSize {
		return a, fmt.Errorf("shm: %w: %d bytes, want %d", fabric.ErrBadAddress, len(b), addressSize)
	}
	if binary.LittleEndian.Uint32(b) != addressMagic {
		return a, fmt.Errorf("shm: %w: not an address of this link", fabric.ErrBadAddress)
	}
	if v := binary.LittleEndian.Uint32(b[4:]); v != addressVersion {
		return a, fmt.Errorf("shm: %w: version %d, want %d: both sides must run the same release", fabric.ErrBadAddress, v, addressVersion)
	}
	if crc32.ChecksumIEEE(b[:addressSize-4]) != binary.LittleEndian.Uint32(b[addressSize-4:]) {
		return a, fmt.Errorf("shm: %w: checksum mismatch", fabric.ErrBadAddress)
	}
	copy(a.host[:], b[8:])
	copy(a.name[:], b[24:])
	copy(a.token[:], b[40:])
	return a, nil
}
