package bringup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/seed33544411/rma/fabric"
)

// requestVersion is the version of the exchange of Requests, in the upper half of their first byte.
// Version 0 had no KeyReady.
const requestVersion = 1

// requestSize is the length of the fields before the address in a Request: the version and the number of
// the link (1), the number of the connection (4), the longest interval between changes of
// the sender's heartbeat in ms, 0 if there is none (4), and the key of the heartbeat.
const requestSize = 1 + 4 + 4 + fabric.RemoteKeySize

// beatSize is the length of a heartbeat, and its alignment.
const beatSize = 8

// Request is a rank's connection request to another rank (docs/wire.md).
type Request struct {
	Link      uint8 // number of the kind of link, as in keys; at most 15
	Number    uint32
	Heartbeat Heartbeat
	Address   []byte // of an endpoint

	wrong error // why the connection cannot be made, instead of an address
}

// Heartbeat is a word that a rank changes as long as its engine makes progress, for its
// peers to read.
type Heartbeat struct {
	Every time.Duration // longest interval between changes; 0: there is no heartbeat
	Word  fabric.RemoteKey
}

// Append appends the encoded request.
func (r *Request) Append(b []byte) []byte {
	b = append(b, requestVersion<<4|r.Link)
	b = binary.LittleEndian.AppendUint32(b, r.Number)
	b = binary.LittleEndian.AppendUint32(b, uint32(r.Heartbeat.Every/time.Millisecond))
	b = r.Heartbeat.Word.Append(b)
	return append(b, r.Address...)
}

// ParseRequest parses a peer's request; the address is a part of b, and not checked. Errors
// wrap fabric.ErrBadAddress.
func ParseRequest(b []byte) (r Request, err error) {
	if len(b) < requestSize {
		return r, fmt.Errorf("%w: connection request of %d bytes", fabric.ErrBadAddress, len(b))
	}
	if b[0]>>4 != requestVersion {
		return r, fmt.Errorf("%w: connection request of version %d, this side's is %d: use the same version of rma on all ranks", fabric.ErrBadAddress, b[0]>>4, requestVersion)
	}
	r.Link = b[0] & 15
	r.Number = binary.LittleEndian.Uint32(b[1:])
	h := &r.Heartbeat
	h.Every = time.Duration(binary.LittleEndian.Uint32(b[5:])) * time.Millisecond
	if h.Word, r.Address, err = fabric.ParseRemoteKey(b[9:]); err != nil {
		return r, fmt.Errorf("%w: %w", fabric.ErrBadAddress, err)
	}
	if h.Every > 0 && (h.Word.Len < beatSize || h.Word.Addr%beatSize != 0) {
		return r, fmt.Errorf("%w: a heartbeat of %d bytes at %#x", fabric.ErrBadAddress, h.Word.Len, h.Word.Addr)
	}
	return r, nil
}

// cutNumber splits a peer's value into the number of the connection that it refers to, and
// the rest.
func cutNumber(val []byte) (number uint32, rest []byte, ok bool) {
	if len(val) < 4 {
		return 0, nil, false
	}
	return binary.LittleEndian.Uint32(val), val[4:], true
}

// Causes of a refusal.
const (
	causeOther     = 0
	causeResources = 1
	causeOtherWay  = 2
)

// maxReason bounds the text of a refusal in bytes.
const maxReason = 500

// AppendRefusal appends the reason why this rank refuses a connection or a channel: a cause
// (1) and a text (docs/wire.md).
func AppendRefusal(b []byte, why error) []byte {
	cause := byte(causeOther)
	if errors.Is(why, fabric.ErrResources) {
		cause = causeResources
	} else if errors.Is(why, fabric.ErrOtherWay) {
		cause = causeOtherWay
	}
	text := why.Error()
	return append(append(b, cause), text[:min(len(text), maxReason)]...)
}

// Refused returns the error for the rank's refusal b. It wraps ErrNoConnection, and
// fabric.ErrResources or fabric.ErrOtherWay if that is the rank's cause.
func Refused(rank int, b []byte) error {
	cause := byte(causeOther)
	if len(b) > 0 {
		cause, b = b[0], b[1:]
	}
	if cause == causeResources {
		return fmt.Errorf("%w: rank %d: %w: %.200q", ErrNoConnection, rank, fabric.ErrResources, b)
	}
	if cause == causeOtherWay {
		return fmt.Errorf("%w: rank %d: %w: %.200q", ErrNoConnection, rank, fabric.ErrOtherWay, b)
	}
	return fmt.Errorf("%w: rank %d: %.200q", ErrNoConnection, rank, b)
}
