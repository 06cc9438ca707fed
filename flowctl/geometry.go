package flowctl

import (
	"fmt"
	"math/bits"
)

// MaxBlocks bounds the blocks of a ring.
const MaxBlocks = 1 << 20

// Geometry is what both ends of a ring must agree on, in blocks.
type Geometry struct {
	Blocks  uint32 // size of the ring, a power of two, 2 to MaxBlocks
	Control uint32 // free blocks that data leaves alone, at least 1
	Every   uint32 // consumed blocks after which credit is returned, at least 1
}

// DefaultGeometry returns a ring of blocks with credit returned at half a ring
// and an eighth, at least one block, kept for control.
//
// Why half: returning later leaves a writer with a full ring waiting for the
// whole round trip; returning earlier writes more credits for nothing, since a
// writer that fills half a ring per round trip is already limited by the link.
func DefaultGeometry(blocks uint32) Geometry {
	return Geometry{Blocks: blocks, Control: max(blocks/8, 1), Every: max(blocks/2, 1)}
}

// Validate checks the geometry. Errors wrap ErrGeometry.
func (g Geometry) Validate() error {
	switch {
	case g.Blocks < 2 || g.Blocks > MaxBlocks || g.Blocks&(g.Blocks-1) != 0:
		return fmt.Errorf("%w: %d blocks, want a power of two from 2 to %d", ErrGeometry, g.Blocks, MaxBlocks)
	case g.Control < 1 || g.Every < 1:
		return fmt.Errorf("%w: control %d, every %d: both must be at least 1", ErrGeometry, g.Control, g.Every)
	case uint64(g.Control)+uint64(g.Every) > uint64(g.Blocks):
		return fmt.Errorf("%w: control %d + every %d exceed %d blocks: a writer could wait for ever", ErrGeometry, g.Control, g.Every, g.Blocks)
	}
	return nil
}

// MaxRun is the longest run of data blocks that is always granted in the end:
// with the reserve for control and Every-1 unreturned credits out of reach.
func (g Geometry) MaxRun() int { return int(g.Blocks - g.Control - (g.Every - 1)) }

// SignalEvery is after how many blocks at most the writer must ask for a
// completion. Fewer than that stay incomplete for ever when the writer stops:
// with at most Every they withhold no more than unreturned credits do.
func (g Geometry) SignalEvery() int {
	return int(min(max(g.Blocks/4, 1), g.Every))
}

// Slot is where block pos lives in the ring.
func (g Geometry) Slot(pos uint64) uint32 { return uint32(pos) & (g.Blocks - 1) }

// Lap is the 16-bit lap number of block pos; the first lap is 1, so that
// zeroed memory holds the mark of no lap that comes next.
func (g Geometry) Lap(pos uint64) uint16 {
	return uint16(pos>>bits.TrailingZeros32(g.Blocks)) + 1
}
