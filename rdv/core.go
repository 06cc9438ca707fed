package rdv

import (
	"fmt"
	"math"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/flowctl"
	"github.com/seed33544411/rma/internal/enum"
	"github.com/seed33544411/rma/internal/fifo"
	"github.com/seed33544411/rma/scatter"
)

// core is the state that both directions of a channel share: the ring for control messages,
// answers and requests that wait to be sent, and the channel's error.
type core struct {
	ring *eager.Channel
	h    Handler
	ep   fabric.Endpoint
	link fabric.Link

	err     error
	live    bool // connected and not failed
	severed bool // the peer can no longer access this side's memory

	tight    int32              // times that the ring was full
	payload  []byte             // scratch for payloads to send
	note     [maxBatch / 8]byte // scratch for payloads of answers
	claims   claims
	byRails  RailReader // nil: this side reads over the endpoint alone
	shares   shares
	answers  fifo.Ring[answer] // wait for room in the ring
	turns    fifo.Ring[uint16] // transfers with requests to post: slots of sink.in, or of source.jobs with turnWrite
	requests                   // for data
	lim      scatter.Limits    // of requests
	opt      Options           // effective
	peer     Setup             // as the peer sent it
	stats    Stats
}

// Stats counts the operations of a channel.
type Stats struct {
	Messages        uint64 // fetched from the peer
	Reads, Writes   uint64 // work requests posted
	QueueFull       uint64 // posts that the link took in part
	Busy            uint64 // refusals because there was no slot or credit
	Offers, Chunks  uint64 // unregistered messages, and chunks of them, announced
	Written         uint64 // adverts of the peer that were written
	Carried, Placed uint64 // announced messages of which this side, and the peer, wrote the last slice
	Slices          uint64 // of shared messages in either direction, copied by this side
	OverRails       uint64 // messages fetched over several connections
	Writing         int    // writes outstanding
	Memory          int    // bytes of ring and staging
}

// Result is the outcome of a call that may be refused. Back-pressure is a value.
type Result uint8

// Results.
const (
	// Accepted: the operation is in flight.
	Accepted Result = iota

	// Busy: as much is outstanding as was agreed, or the ring has no room. Retry after
	// Progress; the call had no effect.
	Busy
)

var resultNames = []string{"accepted", "busy"}

// String returns the name of the result.
func (r Result) String() string { return enum.Name("result", resultNames, r) }

// answer is a control message that waits for room in the ring. Every slot of the channel
// owns a bounded number of places in core.answers, which therefore cannot overflow:
// processing the peer's messages never waits for sending.
type answer struct {
	kind Kind
	id   ID
	arg  uint32
}

// requests are work requests built for the link: wrs[first:staged] wait for Post. Their
// memory is created when needed.
type requests struct {
	wrs           []fabric.WR
	sges          []fabric.SGE
	first, staged int
	pieces        int // used entries of sges
	reads         int // in flight
	writes        int // in flight
}

// WR IDs of data requests: tag 16, unused 14, share 1, write 1, slot 16, end 1, upto 15.
const (
	idWrite     = 1 << 32
	idShare     = 1 << 33 // slot is an index of shares; nothing else is set
	idSlotShift = 16
	idSlotMask  = 1<<16 - 1
	idEnd       = 1 << 15 // reads: end of a chunk; writes: end of all
	idUptoMask  = 1<<15 - 1
)

// turnWrite marks a write job in core.turns.
const turnWrite = 1 << 15

func newCore(link fabric.Link, ep fabric.Endpoint, h Handler, o Options) (core, error) {
	caps := link.Caps()
	o, err := o.effective(caps)
	if err != nil {
		return core{}, err
	}
	ring, err := eager.Open(link, ep, o.Ring)
	if err != nil {
		return core{}, err
	}
	lim := scatter.LimitsOf(caps, uint64(o.Chunk))
	var byRails RailReader
	if o.Rails {
		byRails, _ = h.(RailReader)
	}
	return core{
		byRails: byRails,
		shares:  shares{most: uint32(min(lim.MaxMessage, math.MaxUint32))}, ring: ring, h: h, ep: ep, link: link, opt: o, claims: newClaims(link, ep, h, o.Carry),
		lim: lim,
	}, nil
}

// Err returns the error that ended the channel, or nil while it works.
func (c *core) Err() error { return c.err }

// ready returns the reason why nothing can be sent, if any.
func (c *core) ready() error {
	switch {
	case c.err != nil:
		return c.err
	case !c.live:
		return ErrNotConnected
	}
	return nil
}

// ReadsRails reports whether the peer wants RailKeys with announced messages.
func (c *core) ReadsRails() bool { return c.live && c.peer.Rails }

// fail ends the channel with err. Channel.sweep ends outstanding operations.
func (c *core) fail(err error) {
	if c.err == nil {
		c.err = fmt.Errorf("rendezvous channel: %w", err)
	}
	c.live = false
}

// send puts a control message into the ring. It returns false if there is no room. The
// message is posted with the others of the same Progress or Flush, in one post.
//
// Hot path.
func (c *core) send(k Kind, id ID, arg uint32, payload []byte) bool {
	res, err := c.ring.Stage(eager.Envelope{Meta: meta(id, arg), HasMeta: true, Kind: uint8(k), Class: flowctl.Control}, payload)
	if err != nil {
		c.fail(err)
		return false
	}
	if res == eager.NoCredit {
		c.pressed()
	}
	return res == eager.Accepted
}

// pressed records that the ring was full, and asks for a larger one if that happens often.
func (c *core) pressed() {
	const often = 4
	if c.tight++; c.tight >= often {
		c.tight = 0
		c.ring.Want(commonRing)
	}
}

// SetRates sets Options.CopyRate, RegisterRate and LinkRate, for messages that follow.
func (c *core) SetRates(copying, registering, link float64) {
	c.opt.CopyRate, c.opt.RegisterRate, c.opt.LinkRate = copying, registering, link
}

// Shrink is eager.Channel.Shrink of the ring for control messages.
func (c *core) Shrink() { c.ring.Shrink() }

// Nudge notifies the peer after everything sent so far, for a caller that waits for the
// answer to an advert: a peer without traffic to this side need not poll its ring
// otherwise. The notification is posted with the next Flush or Progress.
//
// Hot path.
func (c *core) Nudge() { c.ring.Nudge() }
