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
//	    2 for more names, 3 to try the link's own port while a carrier is in use, 4 when it works
//	 6  attempt at this connection: its remainder by the number of ports is the port
//	 7  1 if a letter of kind 2 of the sender follows, else 0
//	 8  number of the connection, from 1 (4)
//	12  the packet that the queue pair of the connection before expects; after a carrier, how many notifications
//	    the sender has sent by it, modulo 2^24; in kinds 3 and 4 a random number of the trial (4)
//	16  address of the queue pair of this connection (40)
//	56  over another port than the link's own, in kinds 0 and 2: for each region of the sender
//	      its key (4)
//	      its key at that port (4)
//
// In the last attempt, over a carrier, the letter goes on, from byte 16 on, with
//
//	16  in kind 1: the number of answers to the other side's atomics that it has not read (1), up to 16
//	17  0 (39)
//	56  for each of these answers
//	      its status (4)
//	      the value before (8)
//	    the address of the carrier
//
// Each side sends kinds 0 and 1, and posts when it has the other side's kind 1. Between the two, while a side
// has more names than its letters before had room for, each sends a letter of kind 2, and waits for the other's before the next. An endpoint
// that is down sends an empty letter.

const (
	letterMagic   = "RMAr"
	letterVersion = 3
	resumeSize    = 16 + addrSize

	// Kinds of letters.
	kindStopped, kindReady, kindNames, kindTrial, kindWorks = 0, 1, 2, 3, 4

	// maxAttempt bounds the attempts at one connection.
	maxAttempt = 250

	// lastAttempt is that over the carrier.
	lastAttempt = maxAttempt + 1

	answerSize = 12
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
	carrier  []byte   // in the last attempt
	answers  []letter // in its letter of kindReady
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
		b = append(append(b, byte(len(x.answers))), make([]byte, addrSize-1)...)
		for _, a := range x.answers {
			b = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(b, a.key), a.addr)
		}
		return append(b, x.carrier...)
	}
	return appendNames(append(b, x.address[:]...), x.names)
}

// parseLast parses what is different in the last attempt.
func (x *resumeLetter) parseLast(b []byte) (ok bool) {
	n := int(x.address[0])
	x.address[0] = 0
	if n > maxAsks || n > 0 && x.kind != kindReady || len(b) < n*answerSize || x.kind > kindReady || x.more || x.address != [addrSize]byte{} {
		return false
	}
	for ; n > 0; n-- {
		x.answers = append(x.answers, letter{kind: letterAnswer, key: binary.LittleEndian.Uint32(b), addr: binary.LittleEndian.Uint64(b[4:])})
		b = b[answerSize:]
	}
	x.carrier = b
	return len(b) > 0 && len(b) <= fabric.MaxAddress
}

// parseResumeLetter parses a peer's letter, which is untrusted; the address is not checked.
func parseResumeLetter(b []byte) (x resumeLetter, err error) {
	if len(b) < resumeSize || string(b[:4]) != letterMagic || b[4] != letterVersion || b[5] > kindWorks || b[6] > lastAttempt || b[7] > 1 {
		return x, errBadLetter
	}
	x = resumeLetter{kind: b[5], attempt: int(b[6]), more: b[7] == 1, round: binary.LittleEndian.Uint32(b[8:]), expected: binary.LittleEndian.Uint32(b[12:]), address: [addrSize]byte(b[16:])}
	var ok bool
	if x.attempt == lastAttempt {
		ok = x.parseLast(b[resumeSize:])
	} else {
		x.names, ok = parseNames(b[resumeSize:])
	}
	if x.kind >= kindTrial && (x.attempt != 0 || x.more || len(x.names) > 0) {
		ok = false
	}
	if !ok || x.round == 0 || x.expected > psnMask {
		return x, errBadLetter
	}
	return x, nil
}
