package eager

import (
	"fmt"
	"github.com/seed33544411/rma/internal/enum"

	"github.com/seed33544411/rma/flowctl"
)

// core is the common state of both directions of a channel.
type core struct {
	err    error
	live   bool // connected and not failed
	open   bool // live, and the peer's ring is not being replaced
	closed bool
	sparse bool  // Options.Sparse
	due    uint8 // of the replacement of rings
	rz     *resizing
	memory int // bytes of rings and mirrors
}

// Err returns the error that ended the channel, or nil while it works.
func (c *core) Err() error { return c.err }

// fail ends the channel with err and returns the channel's error.
func (c *core) fail(err error) error {
	if c.err == nil {
		c.err = fmt.Errorf("eager channel: %w", err)
	}
	c.live, c.open = false, false
	return c.err
}

// ready returns the reason why nothing can be sent, if any.
func (c *core) ready() error {
	if !c.live && c.err == nil {
		return ErrNotConnected
	}
	return c.err
}

// Result is the outcome of sending a message. Back-pressure is a value.
type Result uint8

// Results.
const (
	// Accepted: the message was copied and the caller may reuse its memory. It is in
	// flight, or waits in the channel for room in the link's queue.
	Accepted Result = iota

	// NoCredit: the ring has no room, or is being replaced. Poll, receive on this channel, and
	// retry when credit or completions have arrived.
	NoCredit

	// QueueFull: the link's queue has no room, and the channel holds as many messages as it
	// may. Poll and retry.
	QueueFull
)

var resultNames = []string{"accepted", "no credit", "queue full"}

// String returns the name of the result.
func (r Result) String() string { return enum.Name("result", resultNames, r) }

// Envelope accompanies a payload. Meta costs 8 bytes on the wire, only if HasMeta is set;
// the layer above defines Kind.
type Envelope struct {
	Meta    uint64
	Kind    uint8
	HasMeta bool
	Class   flowctl.Class // flowctl.Control may use blocks that data may not
	flags   uint8         // of the trailer: flagRing
}

// Stats counts the operations of a channel.
type Stats struct {
	Sent                uint64 // messages
	Writes              uint64 // work requests posted
	Posts               uint64 // calls of Post
	Credits             uint64 // credit words written
	Notifies            uint64 // requests posted with a notification
	Wakeups             uint64 // notifications received
	InPlace             uint64 // pieces of messages sent in place
	NoCredit, QueueFull uint64 // refusals
	Memory              int    // bytes of rings and mirrors
	Ring, PeerRing      int    // bytes of the rings alone
}
