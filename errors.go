package rma

import (
	"errors"
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/message"
)

// Sentinels for errors.Is. Those of operations come inside a *PeerError.
var (
	// ErrPeerGone says that the peer died, left the job or does not answer.
	ErrPeerGone = fabric.ErrPeerGone

	// ErrRemoteAccess says that the target refused key, address or right.
	ErrRemoteAccess = fabric.ErrRemoteAccess

	// ErrFlushed says that an earlier operation with the same peer failed.
	ErrFlushed = fabric.ErrFlushed

	ErrClosed      = errors.New("rma: engine is closed")
	ErrBounds      = errors.New("outside the region")
	ErrAlign       = errors.New("address of an atomic is not a multiple of 8")
	ErrForeign     = errors.New("buffer belongs to another engine or its region is closed")
	ErrBadKey      = fabric.ErrBadKey
	ErrTooLarge    = errors.New("larger than one request or message may be: split it")
	ErrShortBuffer = message.ErrShortBuffer // a message is longer than the buffer; it stays
	ErrNotTalking  = errors.New("no messages were exchanged with this rank yet")
	ErrRequestUsed = errors.New("request has been waited for already")
)

// PeerError is an operation that failed. It wraps what happened.
type PeerError struct {
	Rank int
	Op   string // "put", "get", "fetch-add", "compare-swap", "send", "receive"
	Err  error
}

func (e *PeerError) Error() string { return fmt.Sprintf("%s with rank %d: %v", e.Op, e.Rank, e.Err) }

// Unwrap returns the cause.
func (e *PeerError) Unwrap() error { return e.Err }

func opName(o fabric.Op) string {
	switch o {
	case fabric.OpWrite:
		return "put"
	case fabric.OpRead:
		return "get"
	case kindSend:
		return "send"
	case kindRecv:
		return "receive"
	case kindBatch:
		return "batch"
	}
	return o.String()
}
