package sampling

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/seed33544411/rma/fabric"
)

// Layout of the region that each side offers for balls and messages. Words that different
// sides write lie on separate cache lines that are not adjacent.
const (
	offPing    = 0   // written by the peer: ball of the ping-pong, or a command
	offTurn    = 256 // written by the peer: number and length of the message in the mailbox
	offOutPing = 512 // sources of the same words at the peer
	offOutTurn = 768
	offMail    = 4096           // written by the peer
	offOutMail = offMail + mail // source
	regionSize = offOutMail + mail
	mail       = 32 << 10
)

// dataSize is the size of the region for measurements, which is allocated only when there
// is something to measure: first the bytes that the peer writes and reads, then as many
// that are source and destination here.
func dataSize(maxSize int) int { return 2 * maxSize }

// SetupSize is the length of a marshalled Setup in bytes.
const SetupSize = 32 + fabric.RemoteKeySize

const setupVersion = 1

// Setup describes a side to its peer before a session. It is exchanged out of band
// (internal/wireup). Little-endian:
//
//	0   version (1), first (0 or 1), mode, 0
//	4   largest size (4)
//	8   budget in ns (8)
//	16  digest of the saved tables, all zero: none (16)
//	32  region: address (8), length (8), key (4)
type Setup struct {
	First   bool
	Mode    Mode
	MaxSize int
	Budget  time.Duration
	Digest  Digest
	Region  fabric.RemoteKey
}

// Append appends the marshalled set-up to b.
func (s *Setup) Append(b []byte) []byte {
	first := byte(0)
	if s.First {
		first = 1
	}
	b = append(b, setupVersion, first, byte(s.Mode), 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(s.MaxSize))
	b = binary.LittleEndian.AppendUint64(b, uint64(s.Budget))
	b = append(b, s.Digest[:]...)
	return s.Region.Append(b)
}

// ParseSetup parses a set-up at the front of b and returns the rest. It checks everything
// that can be checked locally. Errors wrap ErrSetup.
func ParseSetup(b []byte) (s Setup, rest []byte, err error) {
	bad := func(format string, args ...any) (Setup, []byte, error) {
		return Setup{}, b, fmt.Errorf("%w: %w", ErrSetup, fmt.Errorf(format, args...))
	}
	if len(b) < SetupSize {
		return bad("%d bytes, want %d", len(b), SetupSize)
	}
	if b[0] != setupVersion {
		return bad("version %d, want %d: both sides must run the same release", b[0], setupVersion)
	}
	if b[1] > 1 || b[3] != 0 {
		return bad("reserved bits are not zero")
	}
	size, budget := binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint64(b[8:])
	s = Setup{First: b[1] == 1, Mode: Mode(b[2])}
	switch {
	case s.Mode >= numModes:
		return bad("unknown %v", s.Mode)
	case size > maxMaxSize || !goodSize(int(size)):
		return bad("largest size %d", size)
	case budget < uint64(time.Millisecond) || budget > uint64(MaxBudget):
		return bad("budget of %d ns", budget)
	}
	s.MaxSize, s.Budget = int(size), time.Duration(budget)
	copy(s.Digest[:], b[16:])
	if s.Region, rest, err = fabric.ParseRemoteKey(b[32:]); err != nil {
		return bad("%w", err)
	}
	if s.Region.Addr == 0 || s.Region.Addr%8 != 0 {
		return bad("region at %#x, want a multiple of 8", s.Region.Addr)
	}
	if s.Region.Len != regionSize {
		return bad("region of %d bytes, want %d", s.Region.Len, regionSize)
	}
	return s, rest, nil
}
