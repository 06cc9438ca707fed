package rma

import (
	"errors"
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/bringup"
	"github.com/seed33544411/rma/internal/initiator"
	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/message/hub"
	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/internal/pending"
	"github.com/seed33544411/rma/internal/wireup"
	"github.com/seed33544411/rma/mr"
)

// Sentinels for errors.Is. The errors of operations come inside a *PeerError. The same event
// gives the same sentinels on every link and for every kind of operation:
//
//   - The peer died, left the job, closed its engine, or cannot be reached: ErrPeerGone. A
//     process that was itself stopped for longer than the peer's HangTimeout gets it, too,
//     because the peer has closed the connection. Peer.Reset connects again if the peer lives.
//   - The target refused a request: ErrRemoteAccess from that request. The connection is
//     lost, although the peer is alive: all other operations on it, in flight and later, on
//     both sides, fail with an error that wraps ErrFlushed and ErrRemoteAccess. At the target
//     it wraps ErrFlushed alone over devices that do not tell why (rdma_rxe).
//   - The connection was lost for another reason although the peer is alive: an error that
//     wraps ErrFlushed and the reason. That is ErrReset if the peer has called Reset and this
//     side has not seen before why, or while the connection was being made.
//   - The connection, or its message channel, could not be made: an error that wraps
//     ErrNoConnection and the reason, which is ErrResources if either side lacked
//     descriptors or memory.
//   - This engine was closed: ErrClosed.
var (
	// ErrPeerGone says that the peer died, left the job, or cannot be reached any more, or that
	// it has closed the connection with a process that was stopped, this one.
	ErrPeerGone = fabric.ErrPeerGone

	// ErrPeerHung says that the peer's process exists, but that its engine has made no
	// progress for Config.HangTimeout, because it is stopped, starved or stuck, or that it
	// has not given back the memory of a receive that was withdrawn, or not done its part of
	// a message that both ends copy. The connection was closed.
	ErrPeerHung = errors.New("peer hung: no progress")

	// ErrRemoteAccess says that the target refused a key, an address or a right.
	ErrRemoteAccess = fabric.ErrRemoteAccess

	// ErrFlushed says that the connection with the peer is lost because an earlier request,
	// of this side or of the peer, failed. The error wraps its cause as well.
	ErrFlushed = fabric.ErrFlushed

	// ErrReset says that the connection is being replaced, because the peer has called
	// Peer.Reset: that of this side waits for the next one. The error wraps ErrFlushed.
	ErrReset = bringup.ErrReset

	// ErrNoConnection says that the connection with the peer could not be made: the peer
	// did not answer within Config.SetupTimeout, a link failed, or (from Open, on all
	// ranks) two ranks have no link in common.
	ErrNoConnection = bringup.ErrNoConnection

	// ErrBusy says that the number of operations posted and not complete has reached
	// Config.Outstanding, or the bound of libraries. The operation had no effect: wait for others to complete, then
	// post it again.
	ErrBusy = errors.New("too many operations outstanding: wait for some to complete, then post this one again")

	// ErrUnconfirmed says that a peer, whose connection works, has not acknowledged the last
	// messages within the time that Close waits. They may or may not have arrived.
	ErrUnconfirmed = errors.New("not acknowledged by the peer: they may or may not have arrived")

	// ErrResources says that the system has no more descriptors or memory.
	ErrResources = fabric.ErrResources

	// ErrLostResult says that an atomic was executed, once, but that its result was lost with a queue
	// pair; one that is emulated by compare-and-swap may have changed nothing. The connection
	// continues on another queue pair, and no other operation is concerned (docs/rails.md).
	ErrLostResult = fabric.ErrLostResult

	// ErrClosed says that this engine was closed.
	ErrClosed = bringup.ErrClosed

	// ErrContention says that an emulated atomic was abandoned, without effect, because
	// other ranks changed its word before each of hundreds of attempts.
	ErrContention = initiator.ErrContention

	// ErrPeerMisbehaves says that the peer violated the protocol.
	ErrPeerMisbehaves = initiator.ErrMisbehaves

	// ErrInUse says that an operation is in flight in the memory to be released, or that
	// another region has part of that memory, or that an operation is in flight in the
	// batch to be posted again.
	ErrInUse = mr.ErrInUse

	// Arguments of operations that are refused before anything is transferred.
	ErrBounds    = errors.New("outside the region")
	ErrAlign     = errors.New("address is not aligned to the size of the word or element")
	ErrInvalid   = errors.New("invalid argument")
	ErrForeign   = pending.ErrForeign // the buffer belongs to another engine, or its region is closed
	ErrBadKey    = fabric.ErrBadKey
	ErrWrongPeer = errors.New("key belongs to the memory of another rank")
	ErrShape     = onesided.ErrShape   // a Shape with a negative or too large number
	ErrOverlap   = onesided.ErrOverlap // pieces of the destination overlap
	ErrLength    = errors.New("source and destination differ in length")
	ErrTooLarge  = errors.New("too large for one request or message: split it")

	// ErrShortBuffer says that a message is longer than the buffer of its receive. The
	// message remains for the next receive.
	ErrShortBuffer = message.ErrShortBuffer

	// ErrNoMessages says that there is nothing to explain yet: see Batch.Explain.
	ErrNoMessages = errors.New("no messages exchanged with this rank yet")

	// ErrRequestUsed says that the request was used up by an earlier Wait, Then or Forget.
	ErrRequestUsed = errors.New("request has been waited for already")

	// ErrServerGone says that the process that runs the job's wire-up server is gone:
	// collective calls and first connections are not possible any more; operations over
	// existing connections continue. If a rank was the server, the error wraps ErrPeerGone
	// as well and names the rank.
	ErrServerGone = errors.New("the job's wire-up server is gone")

	// ErrNoToken says that the job has no secret, or one that is too short, although other
	// users can reach its wire-up server. The error says how to provide one.
	ErrNoToken = wireup.ErrNoToken

	// ErrGivenUp says that a collective call has failed on all ranks because the context of
	// one ended before all had called it: the rank that the *PeerError names. The next such
	// call is a new one.
	ErrGivenUp = errors.New("collective call given up for all ranks")

	// ErrAborted says that a rank, or the launcher, has ended the job, for example because
	// the rank that runs the wire-up server failed in Open. The error names the rank and
	// the reason.
	ErrAborted = wireup.ErrAborted

	// ErrUndecided says that the context of a collective call has ended, and that the job's
	// server did not report in time whether all ranks had called it by then. The next call
	// with the same arguments continues it.
	ErrUndecided = errors.New("unknown whether all ranks have made the collective call: call it again")

	// ErrOutOfStep says that ranks make different collective calls where all must make the
	// same one.
	ErrOutOfStep = errors.New("ranks make different collective calls")
)

// PeerError is the error of a failed operation with a rank. It wraps the cause, mostly one
// of the sentinels.
type PeerError struct {
	Rank int    // AnyRank if no rank in particular is concerned
	Op   string // "put", "get", "fetch-add", "put-signal", "send", "receive" and so on
	Err  error
}

func (e *PeerError) Error() string {
	if e.Rank == AnyRank {
		return fmt.Sprintf("%s from any rank: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("%s with rank %d: %v", e.Op, e.Rank, e.Err)
}

// Unwrap returns the cause.
func (e *PeerError) Unwrap() error { return e.Err }

// peerError returns the error of an operation with the rank.
func peerError(op string, rank int, err error) error {
	return &PeerError{Rank: rank, Op: op, Err: err}
}

// AnyRank is the rank in a PeerError that concerns no rank in particular.
const AnyRank = hub.AnyRank

// because joins an error with its cause, in one line, without repeating text.
func because(err, cause error) error {
	switch {
	case err == nil:
		return cause
	case cause == nil || errors.Is(err, cause):
		return err
	}
	for _, s := range []error{ErrPeerGone, ErrRemoteAccess, ErrFlushed} {
		if errors.Is(err, s) && errors.Is(cause, s) {
			return cause
		}
	}
	return fmt.Errorf("%w: %w", err, cause)
}
