package rdv

import (
	"encoding/binary"
	"fmt"

	"github.com/seed33544411/rma/eager"
)

// SetupSize is the length of a marshalled Setup in bytes.
const SetupSize = 12 + eager.SetupSize

const setupVersion = 9 // docs/wire.md describes the older versions

// setupRails is the flag of Setup.Rails.
const setupRails = 1

// Setup describes a side to its peer: its bounds of outstanding operations, and its ring.
// It is exchanged out of band, see docs/wire.md.
type Setup struct {
	Transfers uint16 // RTS and offers that may be outstanding here
	Adverts   uint16 // adverts that may be outstanding here
	Messages  uint16 // of one descriptor
	Regions   uint16 // of one descriptor
	Chunks    uint16 // announced chunks of one offer
	Rails     bool   // this side reads over several connections: RailKeys are welcome
	Ring      eager.Setup
}

// Append appends the marshalled set-up to b.
func (s *Setup) Append(b []byte) []byte {
	le := binary.LittleEndian
	flags := byte(0)
	if s.Rails {
		flags = setupRails
	}
	b = append(b, setupVersion, flags)
	b = le.AppendUint16(b, s.Transfers)
	b = le.AppendUint16(b, s.Adverts)
	b = le.AppendUint16(b, s.Messages)
	b = le.AppendUint16(b, s.Regions)
	b = le.AppendUint16(b, s.Chunks)
	return s.Ring.Append(b)
}

// ParseSetup parses a set-up at the front of b and returns the rest. Errors wrap ErrSetup.
func ParseSetup(b []byte) (s Setup, rest []byte, err error) {
	if len(b) < SetupSize {
		return s, b, fmt.Errorf("%w: %d bytes, want %d", ErrSetup, len(b), SetupSize)
	}
	if b[0] != setupVersion || b[1]&^setupRails != 0 {
		return s, b, fmt.Errorf("%w: version %d, flags %#x, want version %d: both sides must run the same release", ErrSetup, b[0], b[1], setupVersion)
	}
	le := binary.LittleEndian
	s = Setup{
		Transfers: le.Uint16(b[2:]), Adverts: le.Uint16(b[4:]), Messages: le.Uint16(b[6:]),
		Regions: le.Uint16(b[8:]), Chunks: le.Uint16(b[10:]), Rails: b[1]&setupRails != 0,
	}
	if s.Transfers < 1 || s.Transfers > maxSlots || s.Adverts < 1 || s.Adverts > maxSlots || s.Messages < 1 ||
		s.Messages > maxBatch || s.Regions < 1 || s.Regions > maxBatch || s.Chunks < 1 || s.Chunks > maxChunks {
		return Setup{}, b, fmt.Errorf("%w: transfers %d, adverts %d, messages %d, regions %d, chunks %d",
			ErrSetup, s.Transfers, s.Adverts, s.Messages, s.Regions, s.Chunks)
	}
	if s.Ring, rest, err = eager.ParseSetup(b[12:]); err != nil {
		return Setup{}, b, fmt.Errorf("%w: %w", ErrSetup, err)
	}
	return s, rest, nil
}
