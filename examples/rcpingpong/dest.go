package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/seed33544411/rma/verbs"
)

// dest is where a queue pair can be reached.
type dest struct {
	LID uint16
	QPN uint32 // 24 bits
	PSN uint32 // 24 bits, of the first packet it will send
	GID verbs.GID
}

// destSize is the length of a dest on the wire: four hexadecimal fields of 4,
// 6, 6 and 32 digits between colons, and a zero byte.
const destSize = 4 + 1 + 6 + 1 + 6 + 1 + 32 + 1

var errDest = errors.New("bad address from the peer")

// Append appends the dest as the peer expects it.
func (d dest) Append(b []byte) []byte {
	return append(fmt.Appendf(b, "%04x:%06x:%06x:%s", d.LID, d.QPN, d.PSN, hex.EncodeToString(d.GID[:])), 0)
}

// parseDest reads what the peer sent. Every digit is checked: it is untrusted.
func parseDest(b []byte) (d dest, err error) {
	if len(b) != destSize {
		return d, fmt.Errorf("%w: %d bytes, want %d", errDest, len(b), destSize)
	}
	if b[4] != ':' || b[11] != ':' || b[18] != ':' || b[destSize-1] != 0 {
		return d, fmt.Errorf("%w: %q is not LID:QPN:PSN:GID", errDest, b)
	}
	field := func(from, to, bits int) (v uint64) {
		if err != nil {
			return 0
		}
		v, e := strconv.ParseUint(string(b[from:to]), 16, bits)
		if e != nil {
			err = fmt.Errorf("%w: %q is not a hexadecimal number of %d bits", errDest, b[from:to], bits)
		}
		return v
	}
	d.LID = uint16(field(0, 4, 16))
	d.QPN = uint32(field(5, 11, 24))
	d.PSN = uint32(field(12, 18, 24))
	if err != nil {
		return dest{}, err
	}
	if _, e := hex.Decode(d.GID[:], b[19:51]); e != nil {
		return dest{}, fmt.Errorf("%w: GID %q: %w", errDest, b[19:51], e)
	}
	return d, nil
}

func (d dest) String() string {
	return fmt.Sprintf("LID %#04x, QPN %#06x, PSN %#06x, GID %v", d.LID, d.QPN, d.PSN, d.GID)
}
