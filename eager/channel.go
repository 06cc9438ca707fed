package eager

import (
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/flowctl"
)

// Channel is one eager connection to one peer, in both directions. It belongs to the
// goroutine that owns its link. Create it with Open, exchange Setup with the peer, then
// call Connect.
type Channel struct {
	receiver // first, because every poll accesses its cache line
	core
	sender
	maxPeer int    // Options.MaxPeerRing
	imm     uint32 // immediate value of notifications
	wakes   bool   // a plain write wakes this side
}

// Open creates a channel on an endpoint that is connected or about to be. It allocates and
// registers the incoming ring. Setup path.
func Open(link fabric.Link, ep fabric.Endpoint, o Options) (*Channel, error) {
	caps := link.Caps()
	o, g, err := o.effective(caps)
	var steps []ring
	if err == nil {
		steps, err = o.ladder(caps)
	}
	if err != nil {
		return nil, fmt.Errorf("open eager channel: %w", err)
	}
	c := &Channel{
		maxPeer: o.MaxPeerRing, imm: o.Imm, wakes: caps.WakesOnWrite,
		receiver: receiver{rxRing: newRing(g, uint32(o.BlockSize)), rx: flowctl.NewReceiver(g), lapMode: o.Mode == ModeLap},
		sender: sender{
			link: link, ep: ep, tag: o.IDTag, maxSGE: caps.MaxSGE, inline: max(caps.MaxInline, 0), signalWRs: o.Depth / 4,
		},
	}
	c.end = c.rxRing.size
	c.answered = c.reached()
	if len(steps) > 0 && c.rxRing.bytes() < fewPieces {
		c.allot(minBatch, 4*minBatch)
	} else {
		c.allot(o.Batch, o.Pieces)
	}
	c.receiver.core, c.sender.core, c.back = &c.core, &c.core, &c.receiver
	c.sparse = o.Sparse
	home, err := openRing(link, ep, c.rxRing, o.Sparse)
	if err != nil {
		return nil, fmt.Errorf("open eager channel: ring of %d bytes: %w", home.bytes(), err)
	}
	c.rz = &resizing{late: o.Late, budget: o.Budget, steps: steps, batch: o.Batch, pieces: o.Pieces, home: home, now: home}
	c.in, c.cells = home.mem, (*[ringStart]byte)(home.mem)
	c.memory = home.memory()
	return c, nil
}

// fewPieces is the size in bytes below which what a ring holds takes few requests and pieces.
const fewPieces = 64 << 10

// Setup returns the data that the peer's Connect needs.
func (c *Channel) Setup() Setup { return c.setup(&c.rz.home) }

// Connect accepts the peer's set-up, which is not trusted, and allocates the mirror of its
// ring, unless Options.Late. The endpoint must be connected before the first flush. Setup path.
func (c *Channel) Connect(s Setup) error {
	switch {
	case c.err != nil:
		return c.err
	case c.live:
		return ErrConnected
	}
	// Only the codec checks a set-up, so s passes through it.
	s, _, err := ParseSetup(s.Append(nil))
	if err != nil {
		return fmt.Errorf("connect eager channel: %w", err)
	}
	r, caps := newRing(s.Geometry, s.BlockSize), c.link.Caps()
	switch {
	case r.bytes() > c.maxPeer:
		return fmt.Errorf("connect eager channel: %w: peer's ring of %d bytes, Options.MaxPeerRing is %d", ErrSetup, r.bytes(), c.maxPeer)
	case uint64(r.bytes()) > caps.MaxMessage:
		return fmt.Errorf("connect eager channel: %w: peer's ring of %d bytes, the link moves %d in one request", ErrSetup, r.bytes(), caps.MaxMessage)
	case s.Mode == ModeLap && !caps.LastByteLast:
		return fmt.Errorf("connect eager channel: %w: mode lap, but the link does not promise LastByteLast", ErrSetup)
	}
	c.peer, c.rz.theirs, c.txRing, c.tx = s, s.Region, r, flowctl.NewSender(s.Geometry)
	if !c.rz.late {
		if err := c.prepare(false); err != nil {
			return fmt.Errorf("connect eager channel: %w", err)
		}
	}
	c.cursorOut = s.Mode == ModeCursor
	if !c.cursorOut && c.link.Caps().MapsAlloc {
		c.near, _ = c.ep.(fabric.Direct)
	}
	c.lax = c.near != nil
	c.live, c.open = true, true
	return nil
}

// Flush posts staged messages and returns credit that is due. done is false if the link's
// queue did not take everything: flush again after polling.
//
// Hot path.
func (c *Channel) Flush() (done bool, err error) {
	if !c.live {
		return false, c.ready()
	}
	err = c.flush(false)
	return c.first == c.staged && !c.nudge && !c.rx.Due(false), err
}

// Recv copies the next message to dst and frees its blocks. ok is false if there is none.
// If dst is shorter than the message, the error is ErrShortBuffer, and the message stays.
//
// Hot path.
func (c *Channel) Recv(dst []byte) (h Head, ok bool, err error) {
	h, ok, err = c.Peek()
	if !ok {
		return h, false, err
	}
	if len(dst) < h.Len {
		return h, false, fmt.Errorf("receive %d bytes into %d: %w", h.Len, len(dst), ErrShortBuffer)
	}
	n := 0
	for i := range c.segments() {
		n += copy(dst[n:], c.segment(i))
	}
	c.consume()
	return h, true, nil
}

// consume frees the blocks of the current message and returns credit if it is due.
//
// Hot path.
func (c *Channel) consume() {
	if c.lapMode && c.cur.k > 1 {
		c.mark()
	}
	c.took(c.cur.k, uint32(c.cur.fill)+trailerSize)
	c.cur.k = 0
	if c.live && c.rx.Due(false) {
		_ = c.flush(false) // c.err keeps a failure; with a full queue the credit remains due
	}
}

// Progress posts waiting requests and returns credit that is due or, with force, all
// consumed credit. Call it when the link has room again and when idle. done is false if
// work is left for the next call.
//
// Hot path.
func (c *Channel) Progress(force bool) (done bool, err error) {
	if c.err != nil {
		return false, c.err
	}
	if !c.live {
		return true, nil
	}
	if !force && !c.nudge && c.first == c.staged && !c.cursorOut && !c.rx.Due(false) && c.due == 0 && load64(c.cells[:], creditCell) == c.word {
		return true, nil
	}
	if c.due != 0 {
		if err := c.resize(); err != nil {
			return false, err
		}
	}
	err = c.flush(force)
	return c.first == c.staged && !c.nudge && !c.rx.Due(false) && c.due&^dueClose == 0 && (!force || c.rx.Owed() == 0), err
}

// OnCompletion handles a completion of the channel's endpoint. It returns false if the
// completion has another tag and does not belong to the channel. Failures and OpDown end
// the channel, see Err.
//
// Hot path.
func (c *Channel) OnCompletion(cpl *fabric.Completion) bool {
	switch cpl.Op {
	case fabric.OpNotify:
		if cpl.Imm != c.imm {
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
	if uint16(cpl.ID>>48) != c.tag {
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
	if c.lax && ahead > idPosMask/2 {
		return true // SendShort has recorded it already, or it concerns the ring before
	}
	if err := c.tx.Complete(done + ahead); err != nil {
		c.fail(err)
	}
	return true
}

// Stats returns the counters.
func (c *Channel) Stats() Stats {
	s := c.stats
	s.Memory, s.Ring, s.PeerRing = c.memory, c.rxRing.bytes(), c.txRing.bytes()
	return s
}

// Close releases the rings. The endpoint must be closed before, and its completions
// drained, so that neither the link nor the peer uses them any longer; leases become
// invalid. If the error wraps fabric.ErrInUse, nothing of the ring in question is released:
// call Close again. Idempotent. Setup path.
func (c *Channel) Close() error {
	if !c.closed {
		c.closed, c.left = true, 0
		c.live, c.open = false, false
		c.endLease()
		c.err = ErrClosed
		c.in = nil
	}
	if err := c.closeRings(); err != nil {
		return fmt.Errorf("close eager channel: %w", err)
	}
	c.memory = 0
	return nil
}
