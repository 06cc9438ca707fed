package rdv

import (
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/scatter"
)

// Incoming is a message that the peer has announced.
type Incoming struct {
	Pos    uint64 // sequence number
	Size   uint32 // bytes
	Tag    uint32 // as the sender set it, for the whole batch
	Handle Handle // identifies the message until Received, or until it is refused
}

// Handle identifies an incoming message.
type Handle uint64

func makeHandle(id ID, index int) Handle { return Handle(id) | Handle(index)<<32 }

func (h Handle) id() ID     { return ID(h) }
func (h Handle) index() int { return int(h >> 32) }

// Verdict is the decision of a Matcher.
type Verdict uint8

// Verdicts.
const (
	Take   Verdict = iota // fetch into the pieces returned with it
	Later                 // no destination yet: Channel.Accept or Refuse will follow
	Refuse                // reject; the sender gets an error, Received is not called
)

// Matcher finds destinations.
type Matcher interface {
	// Match is called once for every message of a batch, in order. With Take it returns the
	// local pieces for exactly m.Size bytes, registered for local writing; they belong to
	// the channel until Received. The slice itself is copied.
	Match(m Incoming) (dst []fabric.SGE, v Verdict)
}

// Advert is a destination that the peer has advertised.
type Advert struct {
	Want        // as the peer set it
	Len  uint32 // bytes that may be written
	ID   ID     // identifies the advert until it is answered or revoked
}

// Answer is the peer's answer to an advert.
type Answer struct {
	Bytes uint32 // bytes written
	Tag   uint32 // of the message that was written,
	Pos   uint64 // and its position, as Write gave them
	Why   uint32 // as Decline set it
}

// Handler is the layer above. The owner calls its methods from within Progress,
// OnCompletion, Sever and Close. They may call Send, SendUnregistered, Accept, Refuse,
// Advertise, Revoke, Write and Decline, but none of these four.
type Handler interface {
	Matcher

	// Received ends a message that was taken or deferred, exactly once: its data is in
	// place (err is nil), or the pieces are no longer accessed.
	Received(m Incoming, err error)

	// Sent ends a transfer of this side, exactly once: its sources are no longer read. err
	// is nil if the peer has fetched everything, or if the write is placed.
	Sent(token uint64, err error)

	// Advertised reports a destination. Write or Decline is due, now or later.
	Advertised(a Advert)

	// Revoked asks for the return of a destination that Advertised reported and that is not
	// answered. True returns it, which is its answer. False keeps it, to be written or
	// declined as before.
	Revoked(a Advert) bool

	// Filled ends an advert of this side, exactly once: a.Bytes of it are written, or err
	// is the reason why none are (ErrDeclined: the data travels in another mode, or not at
	// all).
	Filled(token uint64, a Answer, err error)
}

// RailReader is implemented by a Handler that can read over several connections. The owner calls
// its method from within the calls that call Handler.
type RailReader interface {
	// ReadRails reads all of message h, which Match or Accept gave one piece, from the peer's
	// memory at src, whose keys on further connections are keys. Channel.Fetched follows, perhaps
	// before it returns; until then the piece and the message belong to the reader. It returns
	// false if the channel is to read the message.
	ReadRails(h Handle, src scatter.Region, keys RailKeys) bool
}
