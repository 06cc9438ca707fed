package eager

import (
	"fmt"
	"github.com/seed33544411/rma/internal/enum"
	"math/bits"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/flowctl"
)

// Mode is how the reader detects a message.
type Mode uint8

// Modes.
const (
	ModeAuto   Mode = iota // ModeLap where Caps.LastByteLast, else ModeCursor
	ModeLap                // lap number in the trailer of the block
	ModeCursor             // a word written after the data
)

var modeNames = []string{"auto", "lap", "cursor"}

// String returns the name of the mode.
func (m Mode) String() string { return enum.Name("mode", modeNames, m) }

// Options configures one channel. The zero value is usable.
type Options struct {
	// Blocks is the number of blocks of the incoming ring, a power of two. Zero means 64.
	// Credit is returned after half a ring: 32 messages are far more than are in flight in
	// one round trip of small messages over shm, and enough to hide the round trip over a
	// network. Why not more: it only costs memory and cache.
	//
	// A message longer than a block lies in a run of blocks without a gap and costs little
	// more than its bytes, so a large ring for gathers should have many blocks, not large
	// ones; every message takes at least one block. A gather of 1 MiB through a ring of 4
	// MiB takes the same time with blocks of 1 KiB as of 64 KiB; with blocks of 256 bytes
	// it takes twice as long over shm, because of the marks.
	Blocks int

	// BlockSize is the size of a block in bytes, including its trailer: a multiple of 64,
	// at most 1 MiB. Zero means 4096: one page, and the range in which copying costs less
	// than a rendezvous on every link. Smaller blocks waste less memory but split medium
	// messages.
	BlockSize int

	// Control is the number of free blocks that only control messages may take.
	// Zero means an eighth of Blocks.
	Control int

	// Every is the number of consumed blocks after which credit is returned.
	// Zero means half of Blocks. The longest message is Blocks - Control -
	// (Every-1) blocks: a ring for gathers of more than a third of its size returns
	// credit more often.
	Every int

	// Mode is how the incoming ring announces messages. Zero chooses by the link's
	// capabilities. ModeLap on a link without Caps.LastByteLast is refused.
	Mode Mode

	// Imm is the value of Completion.Imm in the peer's notifications.
	Imm uint32

	// IDTag is the top 16 bits of the channel's WR IDs, so that others may post on the same
	// endpoint with other tags.
	IDTag uint16

	// Depth is the depth of the endpoint's queue. Zero means
	// fabric.DefaultDepth; at least 16.
	Depth int

	// Batch is the number of work requests that may wait for one Post. Zero means 16; at
	// least 8.
	Batch int

	// Pieces is the number of local pieces (SGEs) that may wait for one Post: about two for
	// each part of a message that StageVec sends in place. Zero means 16 per request of
	// Batch, 4 KiB of memory at the default: enough for a gather of a hundred parts in
	// place on devices that take 16 or 30 pieces per request. At least Batch.
	Pieces int

	// Steps are the rings that may take the place of the first one if the peer asks for them,
	// in the order of their sizes. None: the first ring is never replaced.
	Steps []Step

	// Budget bounds the rings and mirrors after the first ones, of all channels that have
	// it. Nil: no bound.
	Budget *Budget

	// Late leaves the mirror of the peer's ring to the first request, for a ring that is seldom
	// used. If there is no memory for it then, the channel fails.
	Late bool

	// Sparse leaves the pages of the first rings and their mirrors to the first accesses, for
	// one of many rings, of which little may be used. Otherwise they are provided at once,
	// which takes a tenth of the time a page. Links may provide them all the same: shm
	// allocates those of rings, and verbs pins all that is registered.
	Sparse bool

	// MaxPeerRing bounds the peer's ring, which this side mirrors, in bytes. Zero means 16
	// MiB or the size of this side's ring, whichever is larger.
	MaxPeerRing int
}

// Step is the size of a ring that may take the place of the first one. Zero fields have
// the same meaning as in Options.
type Step struct{ Blocks, BlockSize, Control, Every int }

const (
	maxBlockSize = 1 << 20
	maxRingBytes = 1 << 30 // a message length fits the 32 bits of the trailer
	minDepth     = 16
	minBatch     = 8
	maxPieces    = 1 << 16
)

// effective returns o with defaults filled in, checked against the link.
func (o Options) effective(caps fabric.Caps) (Options, flowctl.Geometry, error) {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	var g flowctl.Geometry
	def(&o.Blocks, 64)
	def(&o.BlockSize, 4096)
	if o.Blocks < 2 || o.Blocks > flowctl.MaxBlocks || bits.OnesCount(uint(o.Blocks)) != 1 {
		return o, g, fmt.Errorf("%w: %d blocks, want a power of two from 2 to %d", ErrOptions, o.Blocks, flowctl.MaxBlocks)
	}
	d := flowctl.DefaultGeometry(uint32(o.Blocks))
	def(&o.Control, int(d.Control))
	def(&o.Every, int(d.Every))
	def(&o.Depth, fabric.DefaultDepth)
	def(&o.Batch, 16)
	def(&o.Pieces, 16*o.Batch)
	if o.Control < 0 || o.Control > o.Blocks || o.Every < 0 || o.Every > o.Blocks || o.Depth < minDepth || o.Batch < minBatch ||
		o.Batch > 1024 || o.Pieces < o.Batch || o.Pieces > maxPieces || o.MaxPeerRing < 0 {
		return o, g, fmt.Errorf("%w: control %d, every %d, depth %d (at least %d), batch %d (%d to 1024), pieces %d (batch to %d), largest peer ring %d",
			ErrOptions, o.Control, o.Every, o.Depth, minDepth, o.Batch, minBatch, o.Pieces, maxPieces, o.MaxPeerRing)
	}
	switch o.Mode {
	case ModeAuto:
		o.Mode = ModeCursor
		if caps.LastByteLast {
			o.Mode = ModeLap
		}
	case ModeLap:
		if !caps.LastByteLast {
			return o, g, fmt.Errorf("%w: mode lap needs a link with Caps.LastByteLast: use mode cursor", ErrOptions)
		}
	case ModeCursor:
	default:
		return o, g, fmt.Errorf("%w: unknown %v", ErrOptions, o.Mode)
	}
	g = flowctl.Geometry{Blocks: uint32(o.Blocks), Control: uint32(o.Control), Every: uint32(o.Every)}
	if err := checkRing(g, uint64(o.BlockSize)); err != nil {
		return o, g, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	def(&o.MaxPeerRing, max(16<<20, o.Blocks*o.BlockSize))
	return o, g, nil
}

// ladder returns the rings of o.Steps.
func (o Options) ladder(caps fabric.Caps) (rings []ring, err error) {
	last := 0
	for _, s := range o.Steps {
		o.Blocks, o.BlockSize, o.Control, o.Every = s.Blocks, s.BlockSize, s.Control, s.Every
		p, g, err := o.effective(caps)
		if err != nil {
			return nil, err
		}
		r := newRing(g, uint32(p.BlockSize))
		if r.bytes() <= last {
			return nil, fmt.Errorf("%w: a step of %d bytes after one of %d", ErrOptions, r.bytes(), last)
		}
		last = r.bytes()
		rings = append(rings, r)
	}
	return rings, nil
}

// checkRing checks the geometry of a ring, of either side.
func checkRing(g flowctl.Geometry, blockSize uint64) error {
	if err := g.Validate(); err != nil {
		return err
	}
	if blockSize < 64 || blockSize > maxBlockSize || blockSize%64 != 0 {
		return fmt.Errorf("block size %d: want a multiple of 64 from 64 to %d", blockSize, maxBlockSize)
	}
	if n := uint64(g.Blocks) * blockSize; n > maxRingBytes {
		return fmt.Errorf("ring of %d bytes: at most %d", n, maxRingBytes)
	}
	return nil
}
