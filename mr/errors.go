package mr

import (
	"errors"
	"fmt"

	"github.com/seed33544411/rma/fabric"
)

// Sentinels for errors.Is.
var (
	// ErrBadKey says that bytes are no key or reference.
	ErrBadKey = fabric.ErrBadKey

	// ErrStale says that no live registration has the slot and the epoch: the
	// memory was withdrawn, or the key was made up.
	ErrStale = errors.New("stale or forged key")

	// ErrBounds says that a range is not inside the registered memory.
	ErrBounds = errors.New("outside the registered memory")

	// ErrRights says that the registration does not grant the access.
	ErrRights = errors.New("right not granted")

	// ErrNoRail says that memory is not registered with the link asked for.
	ErrNoRail = errors.New("not registered with this link")

	// ErrInUse says that operations under way still hold the memory.
	ErrInUse = fabric.ErrInUse

	// ErrReleased says that what was held has been released before.
	ErrReleased = errors.New("released already")

	// ErrFreed says that a piece was freed before, or belongs to another arena.
	ErrFreed = errors.New("piece is freed or not of this arena")

	// ErrUseAfterFree says that memory was written while it was free.
	ErrUseAfterFree = errors.New("memory written after it was freed")

	// ErrLimit says that a limit on registered memory or entries is reached.
	ErrLimit = errors.New("limit of registered memory reached")

	// ErrSize says that a size is not possible.
	ErrSize = errors.New("invalid size")

	// ErrClosed says that the domain, arena or cache is closed.
	ErrClosed = fabric.ErrClosed
)

// KeyError is an access by key that was refused. It unwraps to what was wrong
// (ErrStale, ErrBounds, ErrRights) and to fabric.ErrRemoteAccess,
// which is what a link reports when its own check refuses.
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

// InUseError is a withdrawal that came too early. It unwraps to ErrInUse.
type InUseError struct {
	Op    string
	Holds int // operations that hold the memory
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("%s: %d operations under way hold the memory", e.Op, e.Holds)
}

// Unwrap returns ErrInUse.
func (e *InUseError) Unwrap() error { return ErrInUse }
