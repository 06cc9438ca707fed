package shm

import "errors"

// Options configures a link. The zero value is usable.
type Options struct {
	// DisableCMA moves private memory by copies through shared bounce buffers, executed by
	// the target's Poll, instead of process_vm_readv/writev. The link does so anyway with a
	// peer if a transfer tried at Connect fails (ptrace restrictions, seccomp, other PID
	// namespace).
	DisableCMA bool

	// DisableSegments makes Alloc return private memory, which peers cannot map: every
	// operation takes the path of registered memory. For tests and comparisons.
	DisableSegments bool

	// StreamFrom and StringFrom are the sizes in bytes from which requests on mapped memory
	// are copied with non-temporal stores, and by the string instruction (see
	// internal/bulk). Zero derives them from the host's caches, until SetCopies sets
	// measured ones; negative means never.
	StreamFrom, StringFrom int64
}

var (
	// ErrCorrupt reports data in a peer's shared memory or socket that no correct peer
	// writes. The endpoint is down; others are not affected.
	ErrCorrupt = errors.New("shm: shared memory of the peer is corrupt")

	// ErrForeignUser reports a peer process of another user.
	ErrForeignUser = errors.New("shm: peer runs as another user")
)
