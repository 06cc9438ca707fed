package logp

import (
	"fmt"

	"github.com/seed33544411/rma/internal/enum"
)

// Mode is a method of transferring messages. See the package comment.
type Mode uint8

// Modes.
const (
	Eager   Mode = iota // one write per message into a ring
	Gather              // one write for many messages into a ring
	Scatter             // descriptor, then reads by the receiver

	NumModes = 3
)

var modeNames = [NumModes]string{"eager", "gather", "scatter"}

// String returns the name of the mode.
func (m Mode) String() string { return enum.Name("mode", modeNames[:], m) }

// ParseMode is the inverse of String.
func ParseMode(s string) (Mode, error) {
	if m, ok := enum.Parse[Mode](modeNames[:], s); ok {
		return m, nil
	}
	return 0, fmt.Errorf("%w: unknown mode %q", ErrParams, s)
}

// MarshalText returns the name of the mode.
func (m Mode) MarshalText() ([]byte, error) {
	if m >= NumModes {
		return nil, fmt.Errorf("%w: unknown %v", ErrParams, m)
	}
	return []byte(m.String()), nil
}

// UnmarshalText is ParseMode.
func (m *Mode) UnmarshalText(b []byte) (err error) {
	*m, err = ParseMode(string(b))
	return err
}

// ModeSet is a set of modes, with bit 1<<mode for each.
type ModeSet uint8

// AllModes holds every mode.
const AllModes ModeSet = 1<<NumModes - 1

// Has reports whether m is in s.
func (s ModeSet) Has(m Mode) bool { return s>>m&1 != 0 }

// With returns the union of s and {m}.
func (s ModeSet) With(m Mode) ModeSet { return s | 1<<m }
