//go:build unix && !linux

package event

// Event is a descriptor that is readable from Set to Clear.
type Event = pipe

// New returns an event that is not set. Close it.
func New() (Event, error) { return newPipe() }

// Set waits for the descriptors given to NewSet.
type Set = pollSet

// NewSet returns a set of descriptors that stay open until it is closed.
func NewSet(fds ...int) (*Set, error) { return newPollSet(fds...) }
