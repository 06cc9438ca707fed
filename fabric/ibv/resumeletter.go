package ibv

import (
	"encoding/binary"
	"errors"
)

// Letters about another connection, little-endian:
//
//	 0  magic "RMAr"
//	 4  version, 2
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
//
// Each side sends kinds 0 and 1, and posts when it has the other side's kind 1. Between the two, while a side
// has more names than its letters before had room for, each sends a letter of kind 2, and waits for the other's before the next. An endpoint
// that is down sends an empty letter.

const (
	letterMagic   = "RMAr"
	letterVersion = 2
	resumeSize    = 16 + addrSize

	// Kinds of letters.
	kindStopped, kindReady, kindNames = 0, 1, 2

	// maxAttempt bounds the attempts at one connection.
	maxAttempt = 250
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
	return appendNames(append(b, x.address[:]...), x.names)
}

// parseResumeLetter parses a peer's letter, which is untrusted; the address is not checked.
func parseResumeLetter(b []byte) (x resumeLetter, err error) {
	if len(b) < resumeSize || string(b[:4]) != letterMagic || b[4] != letterVersion || b[5] > kindNames || b[6] > maxAttempt || b[7] > 1 {
		return x, errBadLetter
	}
	x = resumeLetter{kind: b[5], attempt: int(b[6]), more: b[7] == 1, round: binary.LittleEndian.Uint32(b[8:]), expected: binary.LittleEndian.Uint32(b[12:]), address: [addrSize]byte(b[16:])}
	var ok bool
	if x.names, ok = parseNames(b[resumeSize:]); !ok || x.round == 0 || x.expected > psnMask {
		return x, errBadLetter
	}
	return x, nil
}
