package rdv

import "errors"

// Sentinels for errors.Is.
var (
	// ErrProtocol is a peer that broke the rules. It ends the channel and
	// nothing else. Every *ProtocolError wraps it and one of the next five.
	ErrProtocol = errors.New("rendezvous protocol violated")

	ErrMessage   = errors.New("malformed control message")
	ErrUnknownID = errors.New("no such transfer")
	ErrIDReused  = errors.New("transfer id in use or out of turn")
	ErrTooMany   = errors.New("more outstanding than agreed")
	ErrSize      = errors.New("size does not match the announcement")

	// ErrRefused is a transfer of which the receiver did not want all messages, see
	// Channel.Refused.
	ErrRefused = errors.New("refused by the receiver")

	// ErrCancelled is an advert that was revoked before it was written.
	ErrCancelled = errors.New("advertised destination revoked")

	// ErrDeclined is an advertised destination that the peer did not use.
	ErrDeclined = errors.New("advertised destination not used by the sender")

	// ErrPieces are destination pieces that do not add up to the message.
	ErrPieces = errors.New("destination pieces do not add up to the size of the message")

	// ErrHandle is a handle of a message that is over, or out of place.
	ErrHandle = errors.New("stale or unknown handle")

	// ErrTooLarge is a batch that the peer's bounds exclude for ever: cut it.
	ErrTooLarge = errors.New("larger than the peer accepts")

	// ErrSetup is a set-up blob that is malformed or asks for what we refuse.
	ErrSetup = errors.New("bad rendezvous set-up")

	// ErrOptions is an Options value that makes no sense.
	ErrOptions = errors.New("invalid rendezvous options")

	// ErrNotConnected is the use of a channel before Connect.
	ErrNotConnected = errors.New("channel is not connected")

	// ErrConnected is a second Connect.
	ErrConnected = errors.New("channel is connected already")

	// ErrClosed is the use of a closed channel.
	ErrClosed = errors.New("channel is closed")
)
