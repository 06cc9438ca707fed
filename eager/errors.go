package eager

import (
	"errors"
	"fmt"
)

// Sentinels for errors.Is.
var (
	// ErrCorrupt is a block of a peer that cannot be what an honest peer wrote.
	ErrCorrupt = errors.New("corrupt ring block")

	// ErrSetup is a set-up blob that is malformed or asks for what we refuse.
	ErrSetup = errors.New("bad channel set-up")

	// ErrOptions is an Options value that makes no sense.
	ErrOptions = errors.New("invalid eager options")

	// ErrTooLarge is a message that could never be sent whole: use rendezvous.
	ErrTooLarge = errors.New("message too large for the eager ring: use rendezvous, or larger or more blocks")

	// ErrShortBuffer is a Recv buffer smaller than the message, which stays.
	ErrShortBuffer = errors.New("buffer shorter than the message")

	// ErrLeased is a receiving call while a lease is open: release it first.
	ErrLeased = errors.New("a lease is open: release it first")

	// ErrLeaseEnded is the use of a lease after its release.
	ErrLeaseEnded = errors.New("lease used after its release")

	// ErrNotConnected is sending before Connect, or connecting twice.
	ErrNotConnected = errors.New("channel is not connected")

	// ErrConnected is a second Connect.
	ErrConnected = errors.New("channel is connected already")

	// ErrClosed is the use of a closed channel.
	ErrClosed = errors.New("channel is closed")

	// ErrLimit is a Set that holds as many channels, or as much memory, as it
	// may.
	ErrLimit = errors.New("eager channel limit reached")
)

// BlockError says what is wrong with a block. It unwraps to ErrCorrupt.
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
