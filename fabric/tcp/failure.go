//go:build linux || darwin || freebsd

package tcp

import (
	"errors"
	"fmt"

	"github.com/seed33544411/rma/fabric"
)

var errHungUp = fmt.Errorf("tcp: %w: connection closed by the other side", fabric.ErrPeerGone)

// errAnswerLost says that the answer to a read was lost with its connection, and cannot be requested
// again because the peer has refused a later request.
var errAnswerLost = fmt.Errorf("tcp: %w: an answer was lost, and the other side answers no more", fabric.ErrPeerGone)

// Violations of the protocol that header.parse does not detect.
var (
	errBadAck       = errors.New("acknowledges requests that were not sent")
	errBadReply     = errors.New("reply to a request that is not outstanding")
	errBadNak       = errors.New("refusal of a request that is not outstanding")
	errBadSeq       = errors.New("request out of sequence")
	errTooManyReads = errors.New("more reads and atomics outstanding than announced")
	errNoLanes      = errors.New("payload announced for connections that do not exist")
	errBulkOrder    = errors.New("payload not in the order of its announcements")
	errBadBulk      = errors.New("payload without an announcement")
	errBadTally     = errors.New("continues a connection with requests or answers that cannot be")
)

// failure is the reason for which an endpoint goes down: its oldest request ends with
// status, the rest are flushed.
type failure struct {
	status fabric.Status
	cause  error
	lost   bool // only the connection has failed: the endpoint may continue on another one
}

// endedError says that the peer's endpoint has ended, and how far it had come.
type endedError struct {
	end
	tally
}

func (e *endedError) Error() string { return errHungUp.Error() }
func (e *endedError) Unwrap() error { return errHungUp }

// malformed returns the failure of a connection whose peer violates the protocol.
func malformed(why error) *failure {
	return &failure{status: fabric.StatusRemoteInvalid, cause: fmt.Errorf("tcp: %w: malformed frame from the peer: %w", fabric.ErrRemoteInvalid, why)}
}

// lost returns the failure of a connection whose socket's recv returned err.
func lost(err error) *failure {
	switch {
	case errors.Is(err, errForged):
		return &failure{status: fabric.StatusRemoteInvalid, cause: err}
	case errors.Is(err, errHungUp):
		return &failure{fabric.StatusPeerGone, err, true}
	}
	return &failure{fabric.StatusPeerGone, fmt.Errorf("tcp: receive: %w: %w", fabric.ErrPeerGone, err), true}
}
