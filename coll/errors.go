package coll

import (
	"errors"
	"fmt"

	"github.com/seed33544411/rma"
)

var (
	// ErrInvalid says that an argument is not valid, whatever the other ranks pass. The call
	// had no effect on this rank; it may be repeated with valid arguments.
	ErrInvalid = rma.ErrInvalid

	// ErrMismatch says that two ranks have made different calls where all ranks of a team
	// must make the same one. It comes inside a *MismatchError. The team is revoked.
	ErrMismatch = errors.New("ranks of a team make different collective calls")

	// ErrRevoked says that the team was revoked because an operation failed on a rank, or
	// was cancelled. The error wraps the cause as well. Team.Shrink makes a new team of the
	// ranks that live.
	ErrRevoked = errors.New("team revoked")

	// ErrBusy says that 1024 operations of the team are in flight: wait for some to
	// complete.
	ErrBusy = rma.ErrBusy

	// ErrProtocol reports a peer that violated the protocol of this package.
	ErrProtocol = errors.New("coll: peer violated the protocol")
)

// closedError is rma.ErrClosed for something of an engine that is open.
type closedError string

func (e closedError) Error() string        { return string(e) + " is closed" }
func (e closedError) Is(target error) bool { return target == rma.ErrClosed }

// MismatchError names two ranks, by their numbers in the job, and the calls that they made.
// It wraps ErrMismatch.
type MismatchError struct {
	Ranks [2]int
	Calls [2]string

	m mismatch
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%v: rank %d: %s; rank %d: %s", ErrMismatch, e.Ranks[0], e.Calls[0], e.Ranks[1], e.Calls[1])
}

// Unwrap returns ErrMismatch.
func (e *MismatchError) Unwrap() error { return ErrMismatch }
