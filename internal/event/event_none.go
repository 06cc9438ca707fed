//go:build !unix

package event

import (
	"errors"
	"fmt"
	"runtime"
	"time"
)

var errNone = fmt.Errorf("sleep on a descriptor on %s: %w", runtime.GOOS, errors.ErrUnsupported)

// Event is a descriptor that is readable from Set to Clear.
type Event struct{}

// New fails.
func New() (Event, error) { return Event{}, errNone }

// FD returns no descriptor.
func (Event) FD() int { return -1 }

// Set does nothing: there is no event.
func (Event) Set() {}

// Clear does nothing: there is no event.
func (Event) Clear() {}

// Close does nothing: there is no event.
func (Event) Close() error { return nil }

// Set waits for the descriptors given to NewSet.
type Set struct{}

// NewSet fails.
func NewSet(...int) (*Set, error) { return nil, errNone }

// Wait fails.
func (*Set) Wait(time.Duration) (ready bool, err error) { return false, errNone }

// Readable returns false.
func (*Set) Readable(int) bool { return false }

// Close does nothing: there is no set.
func (*Set) Close() error { return nil }

// Wait fails.
func Wait(int, time.Duration) (ready bool, err error) { return false, errNone }
