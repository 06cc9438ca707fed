package flowctl

import (
	"errors"
	"fmt"
)

// Sentinels for errors.Is.
var (
	ErrGeometry     = errors.New("invalid ring geometry")
	ErrCursorBack   = errors.New("cursor moved backwards")
	ErrCursorBeyond = errors.New("cursor beyond what can be")
)

// CursorError is a cursor word of a peer that cannot be true. It unwraps to
// ErrCursorBack or ErrCursorBeyond.
type CursorError struct {
	What string // which cursor
	Got  uint64 // as it was received, without flag bits
	Low  uint64 // smallest value that would have been accepted
	High uint64 // largest
	back bool
}

func (e *CursorError) Error() string {
	return fmt.Sprintf("%s: %v: got %d, want %d to %d", e.What, e.Unwrap(), e.Got, e.Low, e.High)
}

// Unwrap returns the sentinel.
func (e *CursorError) Unwrap() error {
	if e.back {
		return ErrCursorBack
	}
	return ErrCursorBeyond
}

// wordMask covers the cursor inside a credit word, 63 bits.
const wordMask = 1<<63 - 1

// within returns how far got is ahead of low, both taken modulo mask+1, when
// that is at most span. Half of the number circle counts as "behind".
func within(what string, got, low, span, mask uint64) (uint64, error) {
	d := (got - low) & mask
	if d <= span {
		return d, nil
	}
	return 0, &CursorError{What: what, Got: got & mask, Low: low & mask, High: (low + span) & mask, back: d > mask/2}
}
