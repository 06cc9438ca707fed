package scatter

import (
	"errors"
	"fmt"
)

// Sentinels for errors.Is. Every *DescriptorError wraps ErrDescriptor and one
// of the others.
var (
	ErrDescriptor = errors.New("bad scatter descriptor")

	ErrTruncated = errors.New("truncated")
	ErrForm      = errors.New("unknown form, or reserved bits set")
	ErrCount     = errors.New("count out of bounds")
	ErrSize      = errors.New("sizes of messages and of source regions do not agree")
	ErrOrder     = errors.New("messages out of order")
	ErrOverlap   = errors.New("destinations overlap")
	ErrAddress   = errors.New("address range is empty or wraps")
)

// DescriptorError says what is wrong with a descriptor, and where.
type DescriptorError struct {
	Field string // "header", "message" or "region"
	Index int    // of the message or region
	Why   error  // one of the sentinels
	Have  uint64 // the offending number
	Want  uint64 // its bound
}

func (e *DescriptorError) Error() string {
	return fmt.Sprintf("%v: %s %d: %v (%#x, bound %#x)", ErrDescriptor, e.Field, e.Index, e.Why, e.Have, e.Want)
}

// Unwrap returns ErrDescriptor and the reason.
func (e *DescriptorError) Unwrap() []error { return []error{ErrDescriptor, e.Why} }
