package rdv

import "errors"

// Sentinels for errors.Is.
var (
	// ErrProtocol means that the peer violated the protocol. It ends the channel and
	// nothing else. Every *ProtocolError wraps it and one of the next five.
	ErrProtocol = errors.New("rendezvous protocol violated")

	ErrMessage   = errors.New("malformed control message")
	ErrUnknownID = errors.New("no such transfer")
	ErrIDReused  = errors.New("transfer id in use or out of turn")
	ErrTooMany   = errors.New("more outstanding than agreed")
	ErrSize      = errors.New("size does not match the announcement")

	// ErrClaim means that the peer has changed a claim word, or ended a shared transfer,
	// against the rules. It comes inside a *ProtocolError.
	ErrClaim = errors.New("claim word changed against the rules")

	// ErrRefused ends a transfer of which the receiver refused messages, see
	// Channel.Refused.
	ErrRefused = errors.New("refused by the receiver")

	// ErrCancelled ends an advert that was revoked before it was written.
	ErrCancelled = errors.New("advertised destination revoked")

	// ErrDeclined ends an advert that the peer did not use.
	ErrDeclined = errors.New("advertised destination not used by the sender")

	// ErrPieces means that destination pieces do not add up to the size of the message.
	ErrPieces = errors.New("destination pieces do not add up to the size of the message")

	// ErrHandle means that a handle's message has ended, or is not in the right state.
	ErrHandle = errors.New("stale or unknown handle")

	// ErrTooLarge means that a batch exceeds the peer's bounds: split it.
	ErrTooLarge = errors.New("larger than the peer accepts")

	// ErrSetup means that a set-up blob is malformed or exceeds this side's limits.
	ErrSetup = errors.New("bad rendezvous set-up")

	// ErrOptions means that an Options value is invalid.
	ErrOptions = errors.New("invalid rendezvous options")

	// ErrNotConnected means that Connect was not called.
	ErrNotConnected = errors.New("channel is not connected")

	// ErrConnected means that Connect was called twice.
	ErrConnected = errors.New("channel is connected already")

	// ErrClosed means that the channel is closed.
	ErrClosed = errors.New("channel is closed")
)
