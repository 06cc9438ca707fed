package eager

import (
	"errors"
	"fmt"
)

// Sentinels for errors.Is.
var (
	// ErrCorrupt says that a block contains data that no correct peer writes.
	ErrCorrupt = errors.New("corrupt ring block")

	// ErrSetup says that a set-up blob is malformed or exceeds this side's limits.
	ErrSetup = errors.New("bad channel set-up")

	// ErrOptions says that an Options value is invalid.
	ErrOptions = errors.New("invalid eager options")

	// ErrTooLarge says that a message exceeds the ring: use rendezvous.
	ErrTooLarge = errors.New("message too large for the eager ring: use rendezvous, or larger or more blocks")

	// ErrShortBuffer says that a Recv buffer is smaller than the message, which stays.
	ErrShortBuffer = errors.New("buffer shorter than the message")

	// ErrLeased says that a lease is open during a receiving call: release it first.
	ErrLeased = errors.New("a lease is open: release it first")

	// ErrLeaseEnded says that a lease was used after its release.
	ErrLeaseEnded = errors.New("lease used after its release")

	// ErrNotConnected says that the channel is not connected.
	ErrNotConnected = errors.New("channel is not connected")

	// ErrConnected says that the channel is connected already.
	ErrConnected = errors.New("channel is connected already")

	// ErrClosed says that the channel is closed.
	ErrClosed = errors.New("channel is closed")
)

// BlockError describes an invalid block. It unwraps to ErrCorrupt.
type BlockError struct {
	Pos    uint64 // position of the block
	Word   uint64 // its trailer
	Reason string
}

func (e *BlockError) Error() string {
	return fmt.Sprintf("receive: block %d (trailer %#016x): %v: %s", e.Pos, e.Word, ErrCorrupt, e.Reason)
}

// Unwrap returns ErrCorrupt.
func (e *BlockError) Unwrap() error { return ErrCorrupt }
