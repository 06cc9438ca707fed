package rmanet

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/seed33544411/rma"
)

// Tags of the messages that carry streams: docs/wire.md has the layout.
const (
	tagData    = rma.LibraryTags | 0x4e<<24 // low bits: toOpener, number
	tagControl = rma.LibraryTags | 0x4f<<24
	tagIgnore  = 1<<25 - 1

	toOpener  = 1 << 23 // the message travels to the side that opened the stream
	numberMax = toOpener - 1
)

// Kinds of control frames.
const (
	kindOpen   = 1 // version, window, service
	kindAccept = 2 // window
	kindCredit = 3 // offset up to which the receiver of the frame may send
	kindFin    = 4 // offset at which the stream ends
	kindStop   = 5 // closed: later data is lost
	kindReset  = 6 // reason
)

// Reasons of a reset.
const (
	resetAborted  = 1 // by the application
	resetRefused  = 2 // no listener
	resetBusy     = 3 // too many connections wait to be accepted
	resetProtocol = 4 // the receiver of the reset violated the protocol, by this stream or before
	resetUnread   = 5 // closed before all was read; data sent before is valid
)

const (
	frameHeader = 8
	frameMax    = frameHeader + 8 + MaxService
	version     = 2
)

// frame is one control frame. Its kind determines which fields are used.
type frame struct {
	kind     byte
	toOpener bool
	num      uint32 // of the stream
	n        uint64 // window, offset or reason
	service  string
}

// ErrProtocol says that a peer has violated the protocol of this package, or takes this side
// for one that has. The connections with it are reset, and new ones are refused, until the
// engines' connection is lost and Peer.Reset replaces it.
var ErrProtocol = errors.New("rmanet: peer violated the protocol")

func protocolError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}

// body returns the length of the frame's body.
func (f *frame) body() int {
	switch f.kind {
	case kindOpen:
		return 8 + len(f.service)
	case kindAccept, kindReset:
		return 4
	case kindCredit, kindFin:
		return 8
	}
	return 0
}

// append appends the encoded frame to b.
func (f *frame) append(b []byte) []byte {
	var flags byte
	if f.toOpener {
		flags = 1
	}
	b = append(b, f.kind, flags)
	b = binary.LittleEndian.AppendUint16(b, uint16(f.body()))
	b = binary.LittleEndian.AppendUint32(b, f.num)
	switch f.kind {
	case kindOpen:
		b = append(b, version, 0, 0, 0)
		b = binary.LittleEndian.AppendUint32(b, uint32(f.n))
		b = append(b, f.service...)
	case kindAccept, kindReset:
		b = binary.LittleEndian.AppendUint32(b, uint32(f.n))
	case kindCredit, kindFin:
		b = binary.LittleEndian.AppendUint64(b, f.n)
	}
	return b
}

// parseFrame parses the first frame of b, which is not trusted, and returns the rest of b.
// Errors wrap ErrProtocol.
func parseFrame(b []byte) (f frame, rest []byte, err error) {
	if len(b) < frameHeader {
		return f, nil, protocolError("control frame of %d bytes", len(b))
	}
	f.kind, f.toOpener, f.num = b[0], b[1] == 1, binary.LittleEndian.Uint32(b[4:])
	n := int(binary.LittleEndian.Uint16(b[2:]))
	flags := b[1]
	if b = b[frameHeader:]; n > len(b) {
		return f, nil, protocolError("control frame announces %d bytes, has %d", n, len(b))
	}
	body, rest := b[:n], b[n:]
	if flags > 1 || f.num == 0 || f.num > numberMax {
		return f, nil, protocolError("control frame with flags %#x, stream %d", flags, f.num)
	}
	switch f.kind {
	case kindOpen:
		if n < 8 {
			break
		}
		if body[0] != version || body[1]|body[2]|body[3] != 0 {
			return f, nil, protocolError("version %d, want %d: both sides must run the same release", body[0], version)
		}
		f.n, f.service = uint64(binary.LittleEndian.Uint32(body[4:])), string(body[8:])
		if err := checkService(f.service); err != nil {
			return f, nil, protocolError("%v", err)
		}
	case kindAccept, kindReset:
		if n == 4 {
			f.n = uint64(binary.LittleEndian.Uint32(body))
		}
	case kindCredit, kindFin:
		if n == 8 {
			f.n = binary.LittleEndian.Uint64(body)
		}
	case kindStop:
	default:
		return f, nil, protocolError("control frame of kind %d", f.kind)
	}
	if n != f.body() {
		return f, nil, protocolError("control frame of kind %d with %d bytes", f.kind, n)
	}
	return f, rest, nil
}
