package gather

import (
	"errors"
	"fmt"

	"github.com/seed33544411/rma/internal/enum"
)

// Kind determines the content of a header's entries besides sizes. A changed layout gets a
// new kind.
type Kind uint8

// Kinds.
const (
	Seq  Kind = 1 + iota // Entry.At is a sequence number
	Dest                 // Entry.At is an offset in region Entry.Region of the receiver
)

var kindNames = []string{Seq: "seq", Dest: "dest"}

// String returns the name of the kind.
func (k Kind) String() string { return enum.Name("kind", kindNames, k) }

// MaxCount is the largest number of segments of a gather: the count has 16 bits.
const MaxCount = 1<<16 - 1

// Entry describes one segment.
type Entry struct {
	At     uint64 // Seq: sequence number; Dest: offset in bytes
	Size   uint32 // bytes
	Region uint32 // Dest: number of the destination; Seq: 0
}

// Sentinels for errors.Is.
var (
	// ErrHeader means that a header is malformed: no correct sender creates it.
	ErrHeader = errors.New("bad gather header")

	// ErrOrder means that a header cannot express a list of entries: their places do not
	// ascend, overlap or wrap.
	ErrOrder = errors.New("gather entries must ascend and not overlap")

	// ErrTooLarge means that a message fits no gather: use rendezvous.
	ErrTooLarge = errors.New("message too large for a gather: use rendezvous")

	// ErrReleased means that a payload was used after its lease had ended.
	ErrReleased = errors.New("gather used after the release of its lease")
)

// HeaderError reports an invalid header. It unwraps to ErrHeader.
type HeaderError struct {
	Entry  int // index of the entry, -1: the header as a whole
	Reason string
}

func (e *HeaderError) Error() string {
	if e.Entry < 0 {
		return fmt.Sprintf("split: %v: %s", ErrHeader, e.Reason)
	}
	return fmt.Sprintf("split: %v: entry %d: %s", ErrHeader, e.Entry, e.Reason)
}

// Unwrap returns ErrHeader.
func (e *HeaderError) Unwrap() error { return ErrHeader }
