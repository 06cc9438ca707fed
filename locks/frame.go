package locks

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/seed33544411/rma"
)

// tag is the tag of all messages of this package: docs/wire.md has the layout.
const tag = rma.LibraryTags | 0x4c<<24

// kind is the kind of a frame.
type kind uint8

// Requests to a home, and its answers.
const (
	kindLock      kind = 1 // mode; answered by granted, taken, broken or full
	kindUnlock    kind = 2 // no answer
	kindCancel    kind = 3 // answered by cancelled, unless another answer is on its way
	kindGranted   kind = 4
	kindTaken     kind = 5 // to modeTry
	kindBroken    kind = 6 // rank: the holder that was lost
	kindFull      kind = 7 // the peer has too many requests
	kindCancelled kind = 8
	kindForgotten kind = 9 // what the peer held or waited for, up to the serial: the connection was lost
)

// mode is the way in which a lock is requested.
type mode uint8

const (
	modeShared  mode = 1 << iota // for reading
	modeTry                      // fail instead of waiting
	modeRecover                  // even if broken; exclusive
)

const (
	frameSize = 24
	version   = 2
)

// frame is one message. serial is the request's, chosen by the requesting rank; all frames
// about the request contain it.
type frame struct {
	kind   kind
	mode   mode   // kindLock
	rank   uint32 // kindBroken
	serial uint64
	key    uint64 // kindLock
}

// ErrProtocol reports a peer that violated the protocol of this package. Its locks and
// requests here are discarded, and later requests over the same connection are ignored.
var ErrProtocol = errors.New("locks: peer violated the protocol")

func (f *frame) put(b *[frameSize]byte) {
	b[0], b[1], b[2], b[3] = version, byte(f.kind), byte(f.mode), 0
	binary.LittleEndian.PutUint32(b[4:], f.rank)
	binary.LittleEndian.PutUint64(b[8:], f.serial)
	binary.LittleEndian.PutUint64(b[16:], f.key)
}

// parse parses a frame of a peer. Errors wrap ErrProtocol.
func parse(b []byte) (f frame, err error) {
	if len(b) != frameSize {
		return f, fmt.Errorf("%w: message of %d bytes", ErrProtocol, len(b))
	}
	if b[0] != version {
		return f, fmt.Errorf("%w: version %d, want %d: all ranks must run the same release", ErrProtocol, b[0], version)
	}
	f = frame{
		kind: kind(b[1]), mode: mode(b[2]), rank: binary.LittleEndian.Uint32(b[4:]),
		serial: binary.LittleEndian.Uint64(b[8:]), key: binary.LittleEndian.Uint64(b[16:]),
	}
	lock, broken := f.kind == kindLock, f.kind == kindBroken
	if f.kind < kindLock || f.kind > kindForgotten || b[3] != 0 || f.serial == 0 ||
		f.mode > modeRecover || f.mode != 0 && !lock || f.rank != 0 && !broken || f.key != 0 && !lock {
		return f, fmt.Errorf("%w: % x", ErrProtocol, b)
	}
	return f, nil
}
