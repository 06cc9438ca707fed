package verbs

import (
	"errors"
	"fmt"
	"syscall"
)

// Sentinels for errors.Is.
var (
	// ErrNotSupported: there is no libibverbs (see [Support]), or the device, its driver or
	// the kernel lacks the function.
	ErrNotSupported = errors.New("not supported")

	// ErrNoDevice: there is no RDMA device of that name, or none at all.
	ErrNoDevice = errors.New("no such RDMA device")

	// ErrNoGID: the port has no suitable address.
	ErrNoGID = errors.New("no usable GID")

	// ErrClosed: the object is closed.
	ErrClosed = errors.New("closed")

	// ErrInvalid: an argument is invalid.
	ErrInvalid = errors.New("invalid argument")

	// ErrMemlock: the limit on locked memory is too low (*MemlockError).
	ErrMemlock = errors.New("not enough lockable memory")
)

// Error is a failed call of the library.
type Error struct {
	Op    string        // the failed call, with its relevant arguments
	Errno syscall.Errno // error number of the library or the kernel
	Hint  string        // remedy, empty if none is known
}

func (e *Error) Error() string {
	if e.Hint != "" {
		return fmt.Sprintf("%s: %v: %s", e.Op, e.Errno, e.Hint)
	}
	return fmt.Sprintf("%s: %v", e.Op, e.Errno)
}

// Unwrap returns the errno.
func (e *Error) Unwrap() error { return e.Errno }

// Is makes errors.Is(err, ErrNotSupported) true for error numbers of that meaning.
func (e *Error) Is(target error) bool {
	return target == ErrNotSupported && (e.Errno == syscall.ENOSYS || e.Errno == syscall.EOPNOTSUPP || e.Errno == syscall.EPROTONOSUPPORT)
}

// fail turns an errno into an error, nil for 0.
func fail(op string, no syscall.Errno, hint string) error {
	if no == 0 {
		return nil
	}
	return &Error{Op: op, Errno: no, Hint: hint}
}

// closeFail is fail for closing op's object.
func closeFail(op string, no syscall.Errno) error {
	hint := ""
	if no == syscall.EBUSY {
		hint = "close what was made from it first"
	}
	return fail(op, no, hint)
}

// SymbolError reports that libibverbs lacks a function or has a version of it that this
// package does not support. It wraps ErrNotSupported.
type SymbolError struct {
	Library string // file name; its end is the release, as in libibverbs.so.1.14.44.0
	Symbol  string // the function
	Version string // of the function, as in IBVERBS_1.1
}

func (e *SymbolError) Error() string {
	return fmt.Sprintf("%s has no %s of version %s", e.Library, e.Symbol, e.Version)
}

// Unwrap returns ErrNotSupported.
func (e *SymbolError) Unwrap() error { return ErrNotSupported }

// MemlockError reports that a registration or a queue was refused because the process may
// not lock that much memory. It unwraps to ErrMemlock and to the errno.
type MemlockError struct {
	Op    string
	Errno syscall.Errno
	Size  uint64 // bytes to be locked; 0 if unknown
	Limit uint64 // RLIMIT_MEMLOCK, soft, in bytes; NoLimit if unlimited
}

// NoLimit is the value of MemlockError.Limit if the limit is not the cause.
const NoLimit = ^uint64(0)

func (e *MemlockError) Error() string {
	if e.Limit == NoLimit {
		return fmt.Sprintf("%s: %v: RLIMIT_MEMLOCK is unlimited, so memory or a limit of the device or the cgroup is exhausted", e.Op, e.Errno)
	}
	return fmt.Sprintf("%s: %v: RLIMIT_MEMLOCK is %d bytes (%d KiB): raise it with \"ulimit -l unlimited\", "+
		"\"* - memlock unlimited\" in /etc/security/limits.d, LimitMEMLOCK=infinity in a systemd unit, "+
		"--ulimit memlock=-1 for a container, or give the process CAP_IPC_LOCK", e.Op, e.Errno, e.Limit, e.Limit>>10)
}

// Unwrap returns the sentinel and the errno.
func (e *MemlockError) Unwrap() []error { return []error{ErrMemlock, e.Errno} }

// memFail is fail for calls that lock memory.
func memFail(op string, no syscall.Errno, size uint64, hint string) error {
	if no == syscall.ENOMEM || no == syscall.EPERM || no == syscall.EAGAIN {
		return &MemlockError{Op: op, Errno: no, Size: size, Limit: MemlockLimit()}
	}
	return fail(op, no, hint)
}

// MemlockLimit returns the soft RLIMIT_MEMLOCK of this process in bytes, NoLimit if there
// is none.
func MemlockLimit() uint64 {
	return memlockLimit()
}
