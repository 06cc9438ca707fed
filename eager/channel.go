package eager

import (
	"errors"
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/flowctl"
	"github.com/seed33544411/rma/internal/offheap"
)

// Channel is one eager connection to one peer, both directions. It belongs to
// the goroutine that owns its link. Make it with Open, exchange Setup with the
// peer, then Connect.
type Channel struct {
	// Receiving: touched by every poll.
	in      []byte // cells and ring, written by the peer
	rx      flowctl.Receiver
	rxRing  ring
	cur     message
	lease   uint64 // odd while a lease is open; counts on when it ends
	lapMode bool   // of the incoming ring
	live    bool   // connected and not failed
	corrupt bool   // what lies in the ring cannot be believed

	// Sending.
	cursorOut bool // the peer wants a write cursor (its mode)
	creditOut bool // a credit write from unsent memory is outstanding
	borrowed  bool // memory taken in place since the last signalled request
	nudge     bool // a notification is due
	out       []byte
	tx        flowctl.Sender
	txRing    ring
	word      uint64 // credit word applied last
	told      uint64 // write cursor told to the peer last
	signaled  uint64 // position that the last signalled request covers
	quiet     int    // requests staged since then
	wrs       []fabric.WR
	sges      []fabric.SGE
	first     int // wrs[first:staged] wait for Post
	staged    int
	pieces    int // sges[:pieces] are used by wrs[:staged]
	inPlace   int // pieces in place that one message may have
	ep        fabric.Endpoint
	near      fabric.Direct // ep, where the peer's ring is mapped here perhaps
	err       error
	peer      Setup
	outKey    uint32
	inline    int // bytes that may go inline
	signalWRs int
	stats     Stats

	// Set-up only.
	link   fabric.Link
	opt    Options
	inReg  fabric.Region
	outReg fabric.Region
	caps   fabric.Caps
	memory int
	closed bool
	left   uint64 // end of what may be taken after a failure, see Drain; 0: nothing
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

// Open makes a channel on an endpoint that is, or is about to be, connected.
// It allocates and registers the incoming ring. Setup path.
func Open(link fabric.Link, ep fabric.Endpoint, o Options) (*Channel, error) {
	caps := link.Caps()
	o, g, err := o.effective(caps)
	if err != nil {
		return nil, fmt.Errorf("open eager channel: %w", err)
	}
	c := &Channel{
		link: link, ep: ep, opt: o, caps: caps,
		rxRing: newRing(g, uint32(o.BlockSize)), rx: flowctl.NewReceiver(g),
		lapMode: o.Mode == ModeLap, inline: max(caps.MaxInline, 0), signalWRs: o.Depth / 4,
		wrs: make([]fabric.WR, o.Batch), sges: make([]fabric.SGE, o.Pieces),
		inPlace: inPlaceLimit(o.Batch, o.Pieces, caps.MaxSGE),
	}
	size := ringStart + c.rxRing.bytes()
	if c.inReg, err = link.Alloc(size, fabric.AccessLocalWrite|fabric.AccessRemoteWrite); err != nil {
		return nil, fmt.Errorf("open eager channel: ring of %d bytes: %w", size, err)
	}
	c.in = c.inReg.Bytes()[:size:size]
	c.memory = offheap.RoundUp(size)
	return c, nil
}

// Setup is what the peer needs for its Connect.
func (c *Channel) Setup() Setup {
	k := c.inReg.Key()
	k.Len = uint64(len(c.in)) // a link may have rounded it up
	return Setup{
		Mode: c.opt.Mode, Geometry: c.rxRing.Geometry, BlockSize: c.rxRing.size, Imm: c.opt.Imm, Region: k,
	}
}

// Connect takes the peer's set-up, which is not trusted, and makes the mirror
// of its ring. The endpoint must be connected before the first flush. Setup
// path.
func (c *Channel) Connect(s Setup) error {
	switch {
	case c.err != nil:
		return c.err
	case c.live:
		return ErrConnected
	}
	// Through the codec: it is the one place that checks.
	s, _, err := ParseSetup(s.Append(nil))
	if err != nil {
		return fmt.Errorf("connect eager channel: %w", err)
	}
	r := newRing(s.Geometry, s.BlockSize)
	switch {
	case r.bytes() > c.opt.MaxPeerRing:
		return fmt.Errorf("connect eager channel: %w: peer's ring of %d bytes, Options.MaxPeerRing is %d", ErrSetup, r.bytes(), c.opt.MaxPeerRing)
	case uint64(r.bytes()) > c.caps.MaxMessage:
		return fmt.Errorf("connect eager channel: %w: peer's ring of %d bytes, the link moves %d in one request", ErrSetup, r.bytes(), c.caps.MaxMessage)
	case s.Mode == ModeLap && !c.caps.LastByteLast:
		return fmt.Errorf("connect eager channel: %w: mode lap, but the link does not promise LastByteLast", ErrSetup)
	}
	// Behind the mirror: one word per block for write cursors, one for credit.
	size := r.bytes() + 8*int(r.Blocks) + 8
	mem, err := offheap.Alloc(size, offheap.Staging)
	if err != nil {
		return fmt.Errorf("connect eager channel: %w", err)
	}
	reg, err := c.link.Register(mem, 0)
	if err != nil {
		return errors.Join(fmt.Errorf("connect eager channel: mirror of %d bytes: %w", size, err), offheap.Free(mem, offheap.Staging))
	}
	c.out, c.outReg, c.outKey = mem, reg, reg.LKey()
	c.memory += offheap.RoundUp(size)
	c.peer, c.txRing, c.tx = s, r, flowctl.NewSender(s.Geometry)
	c.cursorOut = s.Mode == ModeCursor
	if !c.cursorOut {
		c.near, _ = c.ep.(fabric.Direct)
	}
	c.live = true
	return nil
}

// fail ends the channel with err and returns the error that it ended with.
func (c *Channel) fail(err error) error {
	if c.err == nil {
		c.err = fmt.Errorf("eager channel: %w", err)
	}
	c.live = false
	return c.err
}

// Err is why the channel ended, nil while it works.
func (c *Channel) Err() error { return c.err }

// Mode is how the incoming ring tells of messages.
func (c *Channel) Mode() Mode { return c.opt.Mode }

// MaxPayload is the longest message of class cl that can be sent, in bytes, 0
// before Connect.
func (c *Channel) MaxPayload(cl flowctl.Class, meta bool) int {
	if c.txRing.Blocks == 0 {
		return 0
	}
	return c.txRing.limit(cl, meta)
}

// Stats returns the counters.
func (c *Channel) Stats() Stats {
	s := c.stats
	s.Memory = c.memory
	return s
}

// WR IDs: the tag in the top 16 bits, then a bit for credit writes whose source
// word must not be touched before they complete, then the position up to which
// blocks are done when the request is.
const (
	idPosBits = 47
	idPosMask = 1<<idPosBits - 1
	idCredit  = 1 << idPosBits
)

func (c *Channel) id(pos uint64) uint64 { return uint64(c.opt.IDTag)<<48 | pos&idPosMask }

// OnCompletion takes a completion of the channel's endpoint. It returns false
// if it is not the channel's: other tag. What it does with failures and with
// OpDown is ending the channel, see Err. Short path.
func (c *Channel) OnCompletion(cpl *fabric.Completion) bool {
	switch cpl.Op {
	case fabric.OpNotify:
		if cpl.Imm != c.opt.Imm {
			return false
		}
		c.stats.Wakeups++
		return true
	case fabric.OpDown:
		err := cpl.Err()
		if err == nil {
			err = fabric.ErrPeerGone
		}
		c.fail(err)
		return true
	}
	if uint16(cpl.ID>>48) != c.opt.IDTag {
		return false
	}
	if cpl.Status != fabric.StatusOK {
		c.fail(cpl.Err())
		return true
	}
	if cpl.ID&idCredit != 0 {
		c.creditOut = false
	}

	done := c.tx.Done()
	ahead := (cpl.ID - done) & idPosMask
	if c.near != nil && ahead > idPosMask/2 {
		return true // SendShort has known it before
	}
	if err := c.tx.Complete(done + ahead); err != nil {
		c.fail(err)
	}
	return true
}

// Close releases the rings. The endpoint must be closed before, and its
// completions drained, so that neither the link nor the peer still uses them;
// leases are void. Idempotent. Setup path.
func (c *Channel) Close() error {
	if c.closed {
		return nil
	}
	c.closed, c.left = true, 0
	c.live = false
	c.endLease()
	c.err = ErrClosed
	c.in = nil
	err := c.inReg.Close()
	if c.outReg != nil {
		err = errors.Join(err, c.outReg.Close(), offheap.Free(c.out, offheap.Staging))
		c.out = nil
	}
	c.memory = 0
	if err != nil {
		return fmt.Errorf("close eager channel: %w", err)
	}
	return nil
}
