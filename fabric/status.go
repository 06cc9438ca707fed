package fabric

import (
	"errors"
	"fmt"
	"syscall"
)

// Status is the result of a work request.
type Status uint8

// Statuses. Links map their device's codes to these; unknown codes become StatusUnknown
// with the device's code in Completion.Vendor.
const (
	StatusOK              Status = iota
	StatusLocalLength            // local pieces too short or too long
	StatusLocalProtection        // local piece outside its region, wrong LKey or no right to write there
	StatusRemoteAccess           // remote key, bounds or rights refused
	StatusRemoteInvalid          // the target found the request malformed
	StatusRemoteOp               // the target failed to execute it
	StatusFlushed                // not executed, or given up, because the endpoint failed or was closed
	StatusPeerGone               // the peer ended, closed or did not answer in time
	StatusNotReady               // the target lacked room for a notification for too long
	StatusUnknown                // a code unknown to this version
	StatusLostResult             // an atomic that was executed, but its result was lost with a connection (Resumer)
	StatusApart                  // an atomic that was not executed: it would not exclude others' (Carried)
	numStatus
)

// Sentinels for errors.Is. Every *OpError unwraps to one of them.
var (
	ErrLocalLength     = errors.New("local length error")
	ErrLocalProtection = errors.New("local protection error: the piece lies outside its registered region, or the key is not that region's")
	ErrRemoteAccess    = errors.New("remote access refused: stale or wrong remote key, address outside the region, or the region lacks the right")
	ErrRemoteInvalid   = errors.New("request invalid at the target")
	ErrRemoteOp        = errors.New("operation failed at the target")
	ErrFlushed         = errors.New("flushed: an earlier request failed or the endpoint was closed")
	ErrPeerGone        = errors.New("peer gone: it died, closed the endpoint or did not answer in time")
	ErrNotReady        = errors.New("target not ready: its notification queue stayed full")
	ErrUnknownStatus   = errors.New("unknown completion status")
	ErrLostResult      = errors.New("the result of an atomic that was executed is lost with the connection, which was made again: read the word before repeating the operation")

	errApart = fmt.Errorf("%w: an atomic that would not exclude those of others over the peer's device, which carries the connection no longer", ErrNotSupported)

	ErrNotSupported = errors.New("not supported")
	ErrNotConnected = errors.New("endpoint is not connected")
	ErrDown         = errors.New("endpoint is down")
	ErrClosed       = errors.New("closed")
	ErrBadAddress   = errors.New("bad endpoint address")
	ErrBadKey       = errors.New("bad remote key encoding")
	ErrInvalidWR    = errors.New("invalid work request")
	ErrRegionsOpen  = errors.New("regions still open")
	ErrInUse        = errors.New("in use by operations in flight")
	ErrResources    = errors.New("the system is out of descriptors or memory")

	// ErrDeviceGone says that the device of a link has vanished or failed for good.
	ErrDeviceGone = errors.New("the device is gone")

	// ErrOtherWay says that a Fork could not connect an endpoint over its first link, while the second may work.
	ErrOtherWay = errors.New("not connected over the first of two links")
)

var statusErr = [numStatus]error{
	StatusLocalLength:     ErrLocalLength,
	StatusLocalProtection: ErrLocalProtection,
	StatusRemoteAccess:    ErrRemoteAccess,
	StatusRemoteInvalid:   ErrRemoteInvalid,
	StatusRemoteOp:        ErrRemoteOp,
	StatusFlushed:         ErrFlushed,
	StatusPeerGone:        ErrPeerGone,
	StatusNotReady:        ErrNotReady,
	StatusUnknown:         ErrUnknownStatus,
	StatusLostResult:      ErrLostResult,
	StatusApart:           errApart,
}

// Err returns the sentinel of the status, nil for StatusOK.
func (s Status) Err() error {
	if s >= numStatus {
		return ErrUnknownStatus
	}
	return statusErr[s]
}

// Alone reports whether a request that fails so is not the end of its endpoint.
func (s Status) Alone() bool { return s == StatusLostResult || s == StatusApart }

// String describes the status.
func (s Status) String() string {
	switch {
	case s == StatusOK:
		return "ok"
	case s >= numStatus:
		return fmt.Sprintf("status(%d)", uint8(s))
	}
	return statusErr[s].Error()
}

// OpError is the error of a failed work request.
type OpError struct {
	Op       Op
	Status   Status
	Endpoint uint32 // EndpointOptions.ID
	Vendor   uint32 // device-specific detail, 0 if none
}

func (e *OpError) Error() string {
	if e.Vendor != 0 {
		return fmt.Sprintf("%v on endpoint %d: %v (vendor code %#x)", e.Op, e.Endpoint, e.Status, e.Vendor)
	}
	return fmt.Sprintf("%v on endpoint %d: %v", e.Op, e.Endpoint, e.Status)
}

// Unwrap returns the sentinel of the status.
func (e *OpError) Unwrap() error { return e.Status.Err() }

// WRError is the error of a work request that Post refused; nothing of it was posted. It
// unwraps to ErrInvalidWR.
type WRError struct {
	Index  int // in the list given to Post
	Op     Op
	Reason string
}

func (e *WRError) Error() string {
	return fmt.Sprintf("post: work request %d (%v): %s", e.Index, e.Op, e.Reason)
}

// Unwrap returns ErrInvalidWR.
func (e *WRError) Unwrap() error { return ErrInvalidWR }

// Shortage makes an error that reports a lack of descriptors or memory of this process or
// host wrap ErrResources and name a remedy. It returns other errors unchanged.
func Shortage(err error) error {
	if errors.Is(err, ErrResources) {
		return err
	}
	for _, e := range [...]syscall.Errno{syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w: raise the limit of open files (ulimit -n)", ErrResources, err)
		}
	}
	for _, e := range [...]syscall.Errno{syscall.ENOBUFS, syscall.ENOMEM, syscall.ENOSPC} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w", ErrResources, err)
		}
	}
	return err
}
