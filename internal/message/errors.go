package message

import (
	"errors"
	"fmt"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/flowctl"
	"github.com/seed33544411/rma/rdv"
)

// Sentinels for errors.Is.
var (
	// ErrPeer means that the peer violated the protocol. It ends the channel and nothing
	// else.
	ErrPeer = errors.New("peer violated the message protocol")

	// ErrShortBuffer means that a receive's buffer is shorter than the message, which stays
	// for the next receive.
	ErrShortBuffer = eager.ErrShortBuffer

	// ErrTooLarge means that a message is longer than MaxSize.
	ErrTooLarge = errors.New("message too large")

	// ErrSetup means that a set-up blob is malformed.
	ErrSetup = errors.New("bad message channel set-up")

	errStaged   = errors.New("messages are copied, not registered: Options.Staged")
	errNoMemory = errors.New("message can be neither registered nor copied")

	// ErrUnwanted means that the receiver refused an announced message.
	ErrUnwanted = errors.New("receiver refused the message")

	// ErrCanceled ends a receive that was withdrawn.
	ErrCanceled = errors.New("receive was withdrawn")

	// ErrClosed means that the channel is closed.
	ErrClosed = errors.New("message channel is closed")
)

// MaxSize is the longest message in bytes: sizes have 32 bits on the wire.
const MaxSize = 1<<32 - 1

// ShortBufferError reports a message of Need bytes that met a receive with a buffer of Have
// bytes. It unwraps to ErrShortBuffer.
type ShortBufferError struct{ Need, Have int }

func (e *ShortBufferError) Error() string {
	return fmt.Sprintf("receive %d bytes into %d: %v", e.Need, e.Have, ErrShortBuffer)
}

// Unwrap returns ErrShortBuffer.
func (e *ShortBufferError) Unwrap() error { return ErrShortBuffer }

func shortBuffer(size int, in *In) error { return &ShortBufferError{Need: size, Have: len(in.Buf)} }

// SequenceError reports a message out of order. It unwraps to ErrPeer.
type SequenceError struct {
	Stream     string // "ring" or "descriptors"
	Have, Want uint64
}

func (e *SequenceError) Error() string {
	return fmt.Sprintf("%v: message %d in the %s, expected %d or later", ErrPeer, e.Have, e.Stream, e.Want)
}

// Unwrap returns ErrPeer.
func (e *SequenceError) Unwrap() error { return ErrPeer }

// blame has an error of a layer below wrap ErrPeer if it says that the peer broke the rules.
func blame(err error) error {
	var cursor *flowctl.CursorError
	if !errors.Is(err, ErrPeer) && (errors.Is(err, eager.ErrCorrupt) || errors.Is(err, rdv.ErrProtocol) || errors.As(err, &cursor)) {
		return fmt.Errorf("%w: %w", ErrPeer, err)
	}
	return err
}

func peerError(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrPeer, fmt.Errorf(format, args...))
}
