package mr

import (
	"errors"
	"fmt"

	"github.com/seed33544411/rma/fabric"
)

// Sentinels for errors.Is.
var (
	// ErrBadKey means that bytes are not a key or reference.
	ErrBadKey = fabric.ErrBadKey

	// ErrStale means that no live registration has the slot and the epoch: the memory was
	// withdrawn, or the key was forged.
	ErrStale = errors.New("stale or forged key")

	// ErrBounds means that a range is not inside the registered memory.
	ErrBounds = errors.New("outside the registered memory")

	// ErrRights means that the registration does not grant the access.
	ErrRights = errors.New("right not granted")

	// ErrNoRail means that memory is not registered with the given link.
	ErrNoRail = errors.New("not registered with this link")

	// ErrInUse means that operations in flight still hold the memory, or that a part of it
	// is registered separately.
	ErrInUse = fabric.ErrInUse

	// ErrReleased means that a hold or lease was released before.
	ErrReleased = errors.New("released already")

	// ErrFreed means that a piece was freed before, or belongs to another arena.
	ErrFreed = errors.New("piece is freed or not of this arena")

	// ErrLimit means that a limit on registered memory or entries is reached.
	ErrLimit = errors.New("limit of registered memory reached")

	// ErrSize means that a size is not possible.
	ErrSize = errors.New("invalid size")

	// ErrClosed means that the domain, arena or cache is closed.
	ErrClosed = fabric.ErrClosed
)

// KeyError reports an access by key that was refused. It unwraps to the reason (ErrStale,
// ErrBounds, ErrRights) and to fabric.ErrRemoteAccess, which a link reports when its own
// check refuses an access.
type KeyError struct {
	Ref  Ref
	Addr uint64
	Len  uint64
	Need fabric.Access
	Err  error
}

func (e *KeyError) Error() string {
	return fmt.Sprintf("access to %d bytes at %#x by key %v, rights %#x: %v", e.Len, e.Addr, e.Ref, uint8(e.Need), e.Err)
}

// Unwrap returns the reason and fabric.ErrRemoteAccess.
func (e *KeyError) Unwrap() []error { return []error{e.Err, fabric.ErrRemoteAccess} }

// InUseError reports a withdrawal of memory in use. It unwraps to ErrInUse.
type InUseError struct {
	Op    string
	Holds int // operations that hold the memory; 0: other registrations of it
}

func (e *InUseError) Error() string {
	if e.Holds == 0 {
		return e.Op + ": a part of the memory is registered separately"
	}
	return fmt.Sprintf("%s: %d operations under way hold the memory", e.Op, e.Holds)
}

// Unwrap returns ErrInUse.
func (e *InUseError) Unwrap() error { return ErrInUse }
