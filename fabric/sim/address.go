package sim

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/seed33544411/rma/fabric"
)

// An address: "simA", network id (8), endpoint serial (8), CRC-32 of these (4).
const (
	addrMagic = "simA"
	addrSize  = 4 + 8 + 8 + 4
)

type addrKey struct{ net, serial uint64 }

func (k addrKey) marshal() []byte {
	b := append(make([]byte, 0, addrSize), addrMagic...)
	b = binary.LittleEndian.AppendUint64(b, k.net)
	b = binary.LittleEndian.AppendUint64(b, k.serial)
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

func parseAddress(b []byte) (addrKey, error) {
	if len(b) != addrSize || string(b[:4]) != addrMagic ||
		binary.LittleEndian.Uint32(b[addrSize-4:]) != crc32.ChecksumIEEE(b[:addrSize-4]) {
		return addrKey{}, fmt.Errorf("%w: not an address of a sim endpoint", fabric.ErrBadAddress)
	}
	return addrKey{binary.LittleEndian.Uint64(b[4:]), binary.LittleEndian.Uint64(b[12:])}, nil
}
