package bringup

import (
	"encoding/binary"
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/initiator"
)

// railVersion is the version of RailValue, in the upper half of its first byte.
const railVersion = 2

// RailValue is what two ranks send each other about a rail of their connection, behind the number of
// the connection: the version and the number of the rail (1), then the key of the sender's word for
// marks (20) and the address of its endpoint; nothing, because that is connected; or the last mark that
// the sender has, because it is closed (8) (docs/wire.md).
type RailValue struct {
	Number  int    // of the rail, from 1 to maxRail
	Address []byte // of an endpoint; empty: it is connected, or closed
	Ready   bool   // it is connected
	Mark    uint64 // if it is closed
	Word    fabric.RemoteKey
}

// Append appends the encoded value.
func (v *RailValue) Append(b []byte) []byte {
	b = append(b, railVersion<<4|byte(v.Number))
	switch {
	case v.Ready:
		return b
	case len(v.Address) == 0:
		return binary.LittleEndian.AppendUint64(b, v.Mark)
	}
	return append(v.Word.Append(b), v.Address...)
}

// ParseRailValue parses a peer's value; the address is a part of b, and not checked. Errors wrap
// fabric.ErrBadAddress.
func ParseRailValue(b []byte) (v RailValue, err error) {
	if len(b) == 0 || b[0]>>4 != railVersion {
		return v, fmt.Errorf("%w: a rail's value of %d bytes, or of another version", fabric.ErrBadAddress, len(b))
	}
	v.Number, b = int(b[0]&15), b[1:]
	switch {
	case v.Number == 0 || v.Number > maxRail:
		return v, fmt.Errorf("%w: rail %d", fabric.ErrBadAddress, v.Number)
	case len(b) == 0:
		v.Ready = true
		return v, nil
	case len(b) == initiator.MarkSize:
		v.Mark = binary.LittleEndian.Uint64(b)
		return v, nil
	case len(b) <= fabric.RemoteKeySize:
		return v, fmt.Errorf("%w: %d bytes about rail %d", fabric.ErrBadAddress, len(b), v.Number)
	}
	if v.Word, v.Address, err = fabric.ParseRemoteKey(b); err != nil {
		return v, fmt.Errorf("%w: %w", fabric.ErrBadAddress, err)
	}
	if v.Word.Len < initiator.MarkSize || v.Word.Addr%initiator.MarkSize != 0 {
		return v, fmt.Errorf("%w: a word for marks of %d bytes at %#x", fabric.ErrBadAddress, v.Word.Len, v.Word.Addr)
	}
	return v, nil
}
