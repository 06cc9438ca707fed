package eager

import (
	"fmt"

	"github.com/seed33544411/rma/flowctl"
)

// core is what both directions of a channel share: its state and its end.
type core struct {
	err    error
	live   bool // connected and not failed
	closed bool
}

// Err is why the channel ended, nil while it works.
func (c *core) Err() error { return c.err }

// fail ends the channel with err and returns the error that it ended with.
func (c *core) fail(err error) error {
	if c.err == nil {
		c.err = fmt.Errorf("eager channel: %w", err)
	}
	c.live = false
	return c.err
}

// ready reports why nothing can be sent.
func (c *core) ready() error {
	if !c.live && c.err == nil {
		return ErrNotConnected
	}
	return c.err
}

// Result says what became of a message handed over. Back-pressure is a value.
type Result uint8

// Results.
const (
	// Accepted: the message was copied; the caller's memory is free again. It
	// is on its way, or waits in the channel for room in the link's queue.
	Accepted Result = iota

	// NoCredit: the ring has no room. Poll, receive from this peer's channel,
	// and try again when credit or completions have come.
	NoCredit

	// QueueFull: the link's queue has no room, and the few messages that the
	// channel holds back are as many as it may. Poll and try again.
	QueueFull
)

// String returns the name of the result.
func (r Result) String() string {
	switch r {
	case Accepted:
		return "accepted"
	case NoCredit:
		return "no credit"
	case QueueFull:
		return "queue full"
	}
	return fmt.Sprintf("result(%d)", uint8(r))
}

// Envelope is what goes with a payload. Meta costs 8 bytes on the wire, only
// when HasMeta is set; Kind is free.
type Envelope struct {
	Meta    uint64
	Kind    uint8
	HasMeta bool
	Class   flowctl.Class // flowctl.Control finds room where data does not
}

// Stats counts what a channel did. Messages and bytes are those of payloads.
type Stats struct {
	Sent, SentBytes         uint64
	Received, ReceivedBytes uint64
	Writes                  uint64 // work requests posted
	Posts                   uint64 // calls of Post
	Credits                 uint64 // credit words written
	Notifies                uint64 // requests posted with a notification
	Wakeups                 uint64 // notifications that came
	InPlace                 uint64 // pieces of messages taken in place
	NoCredit, QueueFull     uint64 // refusals
	Memory                  int    // bytes of rings and mirrors
}
