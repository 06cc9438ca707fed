package shm

import "errors"

// Options configures a link. The zero value is usable.
type Options struct {
	// DisableCMA moves private memory by copies through a shared bounce area,
	// executed by the target's Poll, instead of process_vm_readv/writev. The
	// link does so by itself with a peer where a transfer tried at Connect
	// fails (ptrace restrictions, seccomp, other PID namespace).
	DisableCMA bool

	// DisableSegments makes Alloc hand out private memory, which peers cannot
	// map: every operation takes the path of registered memory. For tests and
	// for comparing.
	DisableSegments bool

	// StreamFrom and StringFrom are sizes in bytes from which on requests on mapped
	// memory are copied with non-temporal stores, and by the string instruction (see
	// internal/bulk). Zero derives them from the host's caches, until somebody who has
	// measured calls SetCopies; negative is never.
	StreamFrom, StringFrom int64
}

var (
	// ErrCorrupt reports that a peer's shared memory or socket holds what no
	// correct peer writes there. The endpoint is down; others are not affected.
	ErrCorrupt = errors.New("shm: shared memory of the peer is corrupt")

	// ErrForeignUser reports a peer process of another user.
	ErrForeignUser = errors.New("shm: peer runs as another user")
)
