package ibv

import (
	"encoding/binary"
	"errors"

	"github.com/seed33544411/rma/fabric"
)

// Letters about another connection, little-endian:
//
//	 0  magic "RMAr"
//	 4  version, 3
//	 5  kind: 0 when the sender has stopped its queue pair, 1 when that of this connection takes packets,
//	    2 for more names
//	 6  attempt at this connection: its remainder by the number of ports is the port
//	 7  1 if a letter of kind 2 of the sender follows, else 0
//	 8  number of the connection, from 1 (4)
//	12  the packet that the queue pair of the connection before expects (4)
//	16  address of the queue pair of this connection (40)
//	56  over another port than the link's own, in kinds 0 and 2: for each region of the sender
//	      its key (4)
//	      its key at that port (4)
//	    in the last attempt, over a carrier, instead: the address of the carrier. That of the queue pair is empty.
//
// Each side sends kinds 0 and 1, and posts when it has the other side's kind 1. Between the two, while a side
// has more names than its letters before had room for, each sends a letter of kind 2, and waits for the other's before the next. An endpoint
// that is down sends an empty letter.

const (
	letterMagic   = "RMAr"
	letterVersion = 3
	resumeSize    = 16 + addrSize

	// Kinds of letters.
	kindStopped, kindReady, kindNames = 0, 1, 2

	// maxAttempt bounds the attempts at one connection.
	maxAttempt = 250

	// lastAttempt is that over the carrier.
	lastAttempt = maxAttempt + 1
)

var errBadLetter = errors.New("malformed letter about another connection")

// resumeLetter is the content of a letter.
type resumeLetter struct {
	kind     uint8
	attempt  int
	more     bool
	round    uint32
	expected uint32
	address  [addrSize]byte
	carrier  []byte // in the last attempt
	names    []name
}

func (x *resumeLetter) append(b []byte) []byte {
	b = append(b, letterMagic...)
	b = append(b, letterVersion, x.kind, byte(x.attempt), 0)
	if x.more {
		b[len(b)-1] = 1
	}
	b = binary.LittleEndian.AppendUint32(b, x.round)
	b = binary.LittleEndian.AppendUint32(b, x.expected)
	if x.attempt == lastAttempt {
		return append(append(b, make([]byte, addrSize)...), x.carrier...)
	}
	return appendNames(append(b, x.address[:]...), x.names)
}

// parseResumeLetter parses a peer's letter, which is untrusted; the address is not checked.
func parseResumeLetter(b []byte) (x resumeLetter, err error) {
	if len(b) < resumeSize || string(b[:4]) != letterMagic || b[4] != letterVersion || b[5] > kindNames || b[6] > lastAttempt || b[7] > 1 {
		return x, errBadLetter
	}
	x = resumeLetter{kind: b[5], attempt: int(b[6]), more: b[7] == 1, round: binary.LittleEndian.Uint32(b[8:]), expected: binary.LittleEndian.Uint32(b[12:]), address: [addrSize]byte(b[16:])}
	var ok bool
	switch rest := b[resumeSize:]; {
	case x.attempt == lastAttempt:
		x.carrier = rest
		ok = len(rest) > 0 && len(rest) <= fabric.MaxAddress && x.kind != kindNames && !x.more && x.address == [addrSize]byte{}
	default:
		x.names, ok = parseNames(rest)
	}
	if !ok || x.round == 0 || x.expected > psnMask {
		return x, errBadLetter
	}
	return x, nil
}
