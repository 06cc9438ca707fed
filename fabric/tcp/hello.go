package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The handshake: the side with the smaller nonce dials and sends a hello, the
// other answers with its own. Each hello shows the token out of the address that
// the receiver of the hello made, which only those know who were given that
// address, and the nonce of its sender, so that the two sides agree which
// endpoints are being joined. Layout, little-endian, helloSize bytes:
//
//	0 "rmaT"  4 version (2)  6 zero (2)  8 token (16)  24 nonce (8)
//	32 reads (4)  36 lane (1)  37 lanes (1)  38 zero (2)
//
// reads is how many reads and atomics the sender will have outstanding at most,
// lane which connection this is: 0 the first, which stands for the endpoint, then
// 1 to lanes. The dialling side says how many lanes it wants, the answer how many
// there will be, at most that.
const (
	helloSize   = 40
	wireVersion = 2
	tokenSize   = 16
)

// maxPeerReads bounds what a peer may ask us to keep track of (24 bytes each).
const maxPeerReads = 4096

var (
	errNotHello = errors.New("peer does not speak this protocol")
	errVersion  = errors.New("peer speaks another version of the protocol")
)

type token [tokenSize]byte

type hello struct {
	token token
	nonce uint64
	reads uint32
	lane  uint8
	lanes uint8
}

func (h *hello) append(b []byte) []byte {
	b = append(b, "rmaT"...)
	b = binary.LittleEndian.AppendUint16(b, wireVersion)
	b = append(b, 0, 0)
	b = append(b, h.token[:]...)
	b = binary.LittleEndian.AppendUint64(b, h.nonce)
	b = binary.LittleEndian.AppendUint32(b, h.reads)
	return append(b, h.lane, h.lanes, 0, 0)
}

func (h *hello) parse(b []byte) error {
	if len(b) < helloSize || string(b[:4]) != "rmaT" {
		return errNotHello
	}
	if v := binary.LittleEndian.Uint16(b[4:]); v != wireVersion {
		return fmt.Errorf("%w: %d, this side %d: use the same release on both", errVersion, v, wireVersion)
	}
	copy(h.token[:], b[8:])
	h.nonce = binary.LittleEndian.Uint64(b[24:])
	h.reads = binary.LittleEndian.Uint32(b[32:])
	h.lane, h.lanes = b[36], b[37]
	if b[6] != 0 || b[7] != 0 || b[38] != 0 || b[39] != 0 || h.lanes > maxLanes || h.lane > h.lanes || h.reads > maxPeerReads {
		return errNotHello
	}
	return nil
}
