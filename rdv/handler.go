package rdv

import (
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/scatter"
)

// Incoming is a message that the peer has to give.
type Incoming struct {
	Pos    uint64 // sequence number or destination offset
	Size   uint32 // bytes
	Tag    uint32 // as the sender gave it, for the whole batch
	Form   scatter.Form
	Handle Handle // names the message until Received, or until it is refused
}

// Handle names an incoming message.
type Handle uint64

func makeHandle(id ID, index int) Handle { return Handle(id) | Handle(index)<<32 }

func (h Handle) id() ID     { return ID(h) }
func (h Handle) index() int { return int(h >> 32) }

// Verdict is what a Matcher says.
type Verdict uint8

// Verdicts.
const (
	Take   Verdict = iota // into the pieces returned with it
	Later                 // no destination yet: Channel.Accept or Refuse will follow
	Refuse                // not wanted; the sender is told, Received is not called
)

// Matcher finds destinations.
type Matcher interface {
	// Match is asked once for every message of a batch, in order. With Take it
	// returns the local pieces for exactly m.Size bytes, registered for local
	// writing; they are the channel's until Received. The slice itself is
	// copied.
	Match(m Incoming) (dst []fabric.SGE, v Verdict)
}

// Advert is a destination that the peer has advertised.
type Advert struct {
	Want        // as the peer gave it
	Len  uint32 // bytes that may be written
	ID   ID     // names the advert until it is answered or revoked
}

// Answer is what the peer said to an advert.
type Answer struct {
	Bytes uint32 // written
	Tag   uint32 // of the message that was written,
	Pos   uint64 // and its position, as Write gave them
	Why   uint32 // as Decline gave it
}

// Handler is the layer above. Its methods are called by the owner from within
// Progress, OnCompletion, Sever and Close; they may call Send, SendUnregistered,
// Accept, Refuse, Advertise, Revoke, Write and Decline, but none of the
// four.
type Handler interface {
	Matcher

	// Received ends a message that was taken or left for later, exactly once:
	// its bytes are in place (err nil), or the pieces are not touched any more.
	Received(m Incoming, err error)

	// Sent ends a transfer of this side, exactly once: nobody reads its sources
	// any more. err is nil if the peer has fetched everything, or if the write
	// is placed.
	Sent(token uint64, err error)

	// Advertised reports a destination. Write or Decline is due, now or later.
	Advertised(a Advert)

	// Revoked is asked to give back what Advertised reported and nothing has
	// answered yet; false keeps it, to be written or declined as if nothing had
	// happened. After true it is answered.
	Revoked(a Advert) bool

	// Filled ends an advert of this side, exactly once: a.Bytes of it are
	// written, or err says why none are (ErrDeclined: the data comes another
	// way, or not at all).
	Filled(token uint64, a Answer, err error)
}
