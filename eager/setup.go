package eager

import (
	"encoding/binary"
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/flowctl"
)

// SetupSize is the length of a marshalled Setup in bytes.
const SetupSize = 24 + fabric.RemoteKeySize

const setupVersion = 4 // 3: one message a block

// Setup describes to the peer the region that the peer writes to. It is exchanged out of
// band (internal/wireup), see docs/wire.md.
type Setup struct {
	Mode      Mode // ModeLap or ModeCursor
	Geometry  flowctl.Geometry
	BlockSize uint32
	Imm       uint32           // for notifications
	Region    fabric.RemoteKey // cells and ring
}

// Append appends the marshalled set-up to b.
func (s *Setup) Append(b []byte) []byte {
	b = append(b, setupVersion, byte(s.Mode), 0, 0)
	b = binary.LittleEndian.AppendUint32(b, s.Geometry.Blocks)
	b = binary.LittleEndian.AppendUint32(b, s.Geometry.Control)
	b = binary.LittleEndian.AppendUint32(b, s.Geometry.Every)
	b = binary.LittleEndian.AppendUint32(b, s.BlockSize)
	b = binary.LittleEndian.AppendUint32(b, s.Imm)
	return s.Region.Append(b)
}

// ParseSetup parses a set-up at the front of b and returns the rest. It checks everything
// that can be checked locally. Errors wrap ErrSetup.
func ParseSetup(b []byte) (s Setup, rest []byte, err error) {
	if len(b) < SetupSize {
		return s, b, fmt.Errorf("%w: %d bytes, want %d", ErrSetup, len(b), SetupSize)
	}
	if b[0] != setupVersion {
		return s, b, fmt.Errorf("%w: version %d, want %d: both sides must run the same release", ErrSetup, b[0], setupVersion)
	}
	if b[2] != 0 || b[3] != 0 {
		return s, b, fmt.Errorf("%w: reserved bytes are not zero", ErrSetup)
	}
	le := binary.LittleEndian
	s = Setup{
		Mode:      Mode(b[1]),
		Geometry:  flowctl.Geometry{Blocks: le.Uint32(b[4:]), Control: le.Uint32(b[8:]), Every: le.Uint32(b[12:])},
		BlockSize: le.Uint32(b[16:]),
		Imm:       le.Uint32(b[20:]),
	}
	if s.Region, rest, err = fabric.ParseRemoteKey(b[24:]); err != nil {
		return Setup{}, b, fmt.Errorf("%w: %w", ErrSetup, err)
	}
	if s.Mode != ModeLap && s.Mode != ModeCursor {
		return Setup{}, b, fmt.Errorf("%w: unknown %v", ErrSetup, s.Mode)
	}
	if err := checkRing(s.Geometry, uint64(s.BlockSize)); err != nil {
		return Setup{}, b, fmt.Errorf("%w: %w", ErrSetup, err)
	}
	if s.Region.Addr == 0 || s.Region.Addr%8 != 0 {
		return Setup{}, b, fmt.Errorf("%w: region at %#x, want a multiple of 8", ErrSetup, s.Region.Addr)
	}
	if want := ringStart + uint64(s.Geometry.Blocks)*uint64(s.BlockSize); s.Region.Len != want {
		return Setup{}, b, fmt.Errorf("%w: region of %d bytes, the ring needs %d", ErrSetup, s.Region.Len, want)
	}
	return s, rest, nil
}
