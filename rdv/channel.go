package rdv

import (
	"fmt"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/scatter"
)

// Channel is the rendezvous side of one connection, both directions. It
// belongs to the goroutine that owns its link. Make it with Open, exchange
// Setup with the peer, then Connect.
type Channel struct {
	ring *eager.Channel
	h    Handler
	ep   fabric.Endpoint
	err  error

	live    bool // connected and not failed
	severed bool // the peer cannot reach our memory any more
	drained bool // what the peer had said before the failure was taken
	waited  bool // what the last FIN said
	refused []byte
	closed  bool

	in       []incoming // the peer's transfers
	fetching int        // of them, not free
	out      []outgoing // ours
	outFree  []uint16
	pipes    []pipe    // of ours that are staged, by slot; made when needed
	streams  turnQueue // of ours that have chunks to send
	stage    staging
	messages []byte // scratch for payloads received
	payload  []byte // scratch for payloads to send
	note     [maxBatch / 8]byte
	control  ctlQueue  // answers that wait for room in the ring
	turns    turnQueue // those with requests to hand out
	hold     bool      // Accept and Refuse collect
	changed  []uint16  // slots that they have changed

	mine     []myAdvert // destinations we advertised
	mineFree []uint16
	theirs   []theirAdvert // those of the peer
	jobs     []writeJob    // writes into those
	jobsFree []uint16

	// Requests handed to the link: wrs[first:staged] wait for Post.
	wrs           []fabric.WR
	sges          []fabric.SGE
	first, staged int
	pieces        int // of sges, in use
	reads         int // in flight
	writes        int // in flight

	lim   scatter.Limits
	opt   Options
	peer  Setup
	link  fabric.Link
	stats Stats
}

// Stats counts what a channel did.
type Stats struct {
	Transfers, Messages, Bytes uint64 // fetched from the peer
	Sent                       uint64 // transfers of ours that ended well
	Reads, Writes              uint64 // work requests posted
	QueueFull                  uint64 // posts that the link took in part
	Busy                       uint64 // refusals for want of slot or credit
	Offers, Chunks             uint64 // unregistered messages, and chunks of them, announced
	NoStaging                  uint64 // times a chunk had to wait for room in the staging memory
	Written                    uint64 // adverts of the peer that were written
	Outgoing, Incoming         int    // transfers outstanding
	Advertised, Writing        int    // adverts of ours and writes outstanding
	Memory                     int    // bytes of ring and staging
}

// Result says what became of a call that takes room. Back-pressure is a value.
type Result uint8

// Results.
const (
	// Accepted: it is under way.
	Accepted Result = iota

	// Busy: as much is outstanding as was agreed, or the ring has no room. Try
	// again after Progress; nothing was kept.
	Busy
)

// String returns the name of the result.
func (r Result) String() string {
	switch r {
	case Accepted:
		return "accepted"
	case Busy:
		return "busy"
	}
	return fmt.Sprintf("result(%d)", uint8(r))
}

// Open makes a channel on an endpoint that is, or is about to be, connected.
// Setup path.
func Open(link fabric.Link, ep fabric.Endpoint, h Handler, o Options) (*Channel, error) {
	caps := link.Caps()
	o, err := o.effective(caps)
	if err != nil {
		return nil, fmt.Errorf("open rendezvous channel: %w", err)
	}
	ring, err := eager.Open(link, ep, o.Ring)
	if err != nil {
		return nil, fmt.Errorf("open rendezvous channel: %w", err)
	}
	b := o.bounds()
	return &Channel{
		ring: ring, h: h, ep: ep, link: link, opt: o,
		in:       make([]incoming, o.Transfers),
		messages: make([]byte, max(b.MaxSize(), 64)),
		payload:  make([]byte, 0, max(b.MaxSize(), 64)),
		wrs:      make([]fabric.WR, batchWRs),
		sges:     make([]fabric.SGE, batchWRs*caps.MaxSGE),
		lim:      scatter.LimitsOf(caps, uint64(o.Chunk)),
	}, nil
}

// Setup is what the peer needs for its Connect.
func (c *Channel) Setup() Setup {
	o := &c.opt
	return Setup{
		Transfers: uint16(o.Transfers), Adverts: uint16(o.Adverts), Messages: uint16(o.Messages),
		Regions: uint16(o.Regions), Chunks: uint16(o.Chunks), Ring: c.ring.Setup(),
	}
}

// Connect takes the peer's set-up, which is not trusted. The endpoint must be
// connected before the first Progress. Setup path.
func (c *Channel) Connect(s Setup) error {
	switch {
	case c.err != nil:
		return c.err
	case c.live:
		return ErrConnected
	}
	// Through the codec: it is the one place that checks.
	s, _, err := ParseSetup(s.Append(nil))
	if err == nil {
		err = c.ring.Connect(s.Ring)
	}
	if err != nil {
		return fmt.Errorf("connect rendezvous channel: %w", err)
	}
	c.peer = s
	n := min(int(s.Transfers), c.opt.Transfers)
	c.out, c.outFree = make([]outgoing, n), freeList(n)
	n = min(int(s.Adverts), c.opt.Adverts)
	c.mine, c.mineFree = make([]myAdvert, n), freeList(n)
	c.theirs, c.jobs, c.jobsFree = make([]theirAdvert, n), make([]writeJob, n), freeList(n)
	// Answers that can wait at once: ready, ack and FIN for each incoming
	// transfer; an answer to each advert of the peer; a revocation of each of ours.
	c.control.init(3*len(c.in) + 2*n)
	c.turns.init(len(c.in) + len(c.jobs))
	c.changed = make([]uint16, 0, len(c.in))
	c.streams.init(len(c.out))
	c.live = true
	return nil
}

// freeList names all of n slots, the first one last.
func freeList(n int) []uint16 {
	f := make([]uint16, n)
	for i := range f {
		f[i] = uint16(n - 1 - i)
	}
	return f
}

// Err is why the channel ended, nil while it works.
func (c *Channel) Err() error { return c.err }

// Stats returns the counters.
func (c *Channel) Stats() Stats {
	s := c.stats
	s.Outgoing, s.Incoming = len(c.out)-len(c.outFree), c.fetching
	s.Advertised, s.Writing = len(c.mine)-len(c.mineFree), len(c.jobs)-len(c.jobsFree)
	s.Memory = c.ring.Stats().Memory + len(c.stage.mem)
	return s
}

// Idle reports that nothing is outstanding in either direction and nothing
// waits to be posted. Short path: it is asked in every round.
func (c *Channel) Idle() bool {
	return len(c.outFree) == len(c.out) && len(c.mineFree) == len(c.mine) && len(c.jobsFree) == len(c.jobs) &&
		c.control.n == 0 && c.first == c.staged && c.reads == 0 && c.writes == 0 && c.fetching == 0
}

// Progress does what can be done: takes the peer's control messages, posts
// requests and answers, returns credit. Call it after the link was polled, and
// again while did is true. A non-nil error is the channel's end. Short path.
func (c *Channel) Progress() (did bool, err error) {
	if c.live && (c.busy() || c.ring.Waiting()) {
		did = c.receive()
		did = c.post() || did
		did = c.flushControl() || did
		did = c.stream() || did
	}
	if c.live {
		if _, err := c.ring.Progress(false); err != nil {
			c.fail(err)
		}
	}
	c.sweep()
	return did, c.err
}

// busy reports whether this side has anything to do of its own. Short path: it is asked
// in every round.
func (c *Channel) busy() bool {
	return c.first != c.staged || c.turns.n != 0 || c.control.n != 0 || c.streams.n != 0
}

// Flush posts what was handed in since the last Progress, which else does it: to be
// called behind the last of several Send, Write, Advertise or Decline, where
// nothing is to wait for the next look at the link. Short path.
func (c *Channel) Flush() error {
	if c.live {
		c.post()
		c.flushControl()
	}
	if c.live {
		if _, err := c.ring.Flush(); err != nil {
			c.fail(err)
		}
	}
	return c.err
}

// Sleep sets or clears the sleep bit at the peer, see eager.Channel.Sleep.
func (c *Channel) Sleep(on bool) (done bool, err error) { return c.ring.Sleep(on) }

// fail ends the channel with err. What is outstanding is ended by sweep.
func (c *Channel) fail(err error) {
	if c.err == nil {
		c.err = fmt.Errorf("rendezvous channel: %w", err)
	}
	c.live = false
}

// OnCompletion takes a completion of the channel's endpoint. It returns false
// if it is not the channel's: other tag. Other users of the endpoint want to
// see OpDown as well. Short path.
func (c *Channel) OnCompletion(cpl *fabric.Completion) bool {
	switch {
	case cpl.Op == fabric.OpNotify:
		return c.ring.OnCompletion(cpl)
	case cpl.Op == fabric.OpDown:
		c.ring.OnCompletion(cpl)
		c.severed = true
		c.fail(c.ring.Err())
	case uint16(cpl.ID>>48) == c.opt.IDTag:
		c.ring.OnCompletion(cpl)
		if err := c.ring.Err(); err != nil {
			c.fail(err)
		}
	case uint16(cpl.ID>>48) == c.opt.IDTag+1:
		c.onData(cpl)
	default:
		return false
	}
	c.sweep()
	return true
}
