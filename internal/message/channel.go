package message

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/rdv"
)

// Channel transfers messages between this rank and one other, in both directions. Create it
// with Open, exchange Setup, then Connect. It belongs to the owner of its link.
type Channel struct {
	streams
	sender
	receiver
	settling bool // nothing is sent any longer, see Settle

	calm struct {
		messages uint64 // sent and received, since then
		since    time.Time
	}
}

// handler receives the calls of the rendezvous channel.
type handler struct {
	*sendHandler
	*recvHandler
}

// Stats counts the operations of a channel.
type Stats struct {
	SendStats
	RecvStats
	NoCredit  uint64 // refusals because the peer's ring had no room
	QueueFull uint64 // refusals because the link's queue was full

	Ring, PeerRing int // bytes of the rings of messages, in this side's memory and in the peer's
}

// Open creates a channel on an endpoint that is connected or about to be. Setup path.
func Open(link fabric.Link, ep fabric.Endpoint, o Options) (*Channel, error) {
	c := &Channel{streams: streams{link: link, ep: ep, opt: o.effective(link.Name())}}
	c.endBacklog = c.endWaiting
	o = c.opt
	err := c.sender.open(&c.streams)
	if err != nil {
		return nil, fmt.Errorf("open message channel: %w", err)
	}
	c.receiver.open(&c.streams)
	if c.ring, err = eager.Open(link, ep, o.Ring); err != nil {
		return nil, fmt.Errorf("open message channel: %w", err)
	}
	events := handler{(*sendHandler)(&c.sender), (*recvHandler)(&c.receiver)}
	if c.rendezvous, err = rdv.Open(link, ep, events, o.Rendezvous); err != nil {
		return nil, errors.Join(fmt.Errorf("open message channel: %w", err), c.ring.Close())
	}
	c.rendezvous.SetRates(o.Params.Rates())
	if c.pins = o.Pins; c.pins == nil {
		if c.pins, err = NewPins(link, o.Pinned); err != nil {
			return nil, errors.Join(fmt.Errorf("open message channel: %w", err), c.rendezvous.Close(), c.ring.Close())
		}
	}
	c.opt.Ring.Steps, c.opt.Rendezvous.Ring.Steps = nil, nil // eager has copied them
	c.unexpected.ring, c.unexpected.window = c.ring, o.Ring.Blocks*o.Ring.BlockSize
	c.reads.pins = c.pins
	return c, nil
}

// Setup returns the data that the peer's Connect needs, to be exchanged out of band.
func (c *Channel) Setup() []byte {
	ring, rendezvous := c.ring.Setup(), c.rendezvous.Setup()
	return rendezvous.Append(ring.Append([]byte{setupVersion}))
}

// Connect accepts the peer's set-up. Setup path.
func (c *Channel) Connect(setup []byte) error {
	ring, rendezvous, err := parseSetup(setup)
	if err == nil {
		err = c.ring.Connect(ring)
	}
	if err == nil {
		err = c.rendezvous.Connect(rendezvous)
	}
	if err != nil {
		return fmt.Errorf("connect message channel: %w", err)
	}
	c.connect(rendezvous)
	c.live = true
	return nil
}

// Err returns the error that ended the channel, or nil while it works.
func (c *Channel) Err() error { return c.err }

// Stats returns the counters.
func (c *Channel) Stats() Stats {
	s := Stats{SendStats: SendStats{SendCounts: c.sender.stats}, RecvStats: c.receiver.stats}
	s.Backlog, s.Learn = c.backlog.n, c.learn.snapshot()
	ring, rendezvous := c.ring.Stats(), c.rendezvous.Stats()
	s.NoCredit, s.QueueFull = ring.NoCredit+rendezvous.Busy, ring.QueueFull+rendezvous.QueueFull
	s.Ring, s.PeerRing = ring.Ring, ring.PeerRing
	return s
}

// Memory returns the size of the channel's memory in bytes.
func (c *Channel) Memory() int {
	return c.ring.Stats().Memory + c.rendezvous.Stats().Memory + c.unexpected.bytes
}

// Progress processes arrivals, posts waiting messages, and ends completed ones. Call it
// after polling the link. more reports that work is left for which Progress must be called
// again. A non-nil error ends the channel.
//
// Hot path.
func (c *Channel) Progress() (did, more bool, err error) {
	c.opt.Owner.Assert()
	if !c.live {
		c.finish()
		return false, false, c.err
	}
	busy, err := c.rendezvous.Progress()
	if err != nil {
		c.fail(err)
		c.finish()
		return true, false, c.err
	}
	c.rest.turn()
	did = c.arrive() || busy || c.rest.left
	did = !c.settling && c.transmit() || did
	did = c.reap() || did
	did = c.advertise() || did
	c.flushRendezvous()
	done := true
	if c.err == nil {
		if done, err = c.ring.Progress(false); err != nil {
			c.fail(err)
		}
	}
	if out, in := c.ring.Moved(); out != c.window.moves || in != c.unexpected.moves {
		c.follow()
	}
	if c.err != nil {
		c.finish()
	}
	more = !done || c.backlog.n > 0 || c.inflight.Len() > 0 || c.posted.n > 0 || c.rest.left || c.shared != nil && c.shared.Len() > 0 || !c.rendezvous.Idle()
	return did, more, c.err
}

// PollLeft is Poll, for a receive that was just posted, if messages may have stayed in the ring
// for want of receives.
//
// Hot path.
func (c *Channel) PollLeft() {
	if c.rest.left {
		c.Poll()
	}
}

// Reoffer passes unexpected messages to receives that a withdrawn one with a Source has kept
// from them. The receives with other Sources are to be offered afterwards.
func (c *Channel) Reoffer() {
	c.opt.Owner.Assert()
	reoffer(&c.receiver)
}

// Relax gives back the rings that followed the first ones if no message was sent or received
// since the call before, which was restTime ago or more. It reports whether it did: call
// Progress then.
func (c *Channel) Relax(now time.Time) bool {
	c.opt.Owner.Assert()
	n := c.sender.stats.Sent + c.receiver.stats.Received
	switch {
	case !c.live:
		return false
	case n != c.calm.messages || c.calm.since.IsZero():
		c.calm.messages, c.calm.since = n, now
		return false
	case now.Sub(c.calm.since) < restTime:
		return false
	}
	c.ring.Shrink()
	c.rendezvous.Shrink()
	return true
}

// restTime is how long a peer is idle before others may have the memory of its rings.
const restTime = time.Second

// follow adapts to rings that have taken the place of others.
func (c *Channel) follow() {
	out, in := c.ring.Moved()
	if out != c.window.moves {
		c.window.moves = out
		c.connect(c.peer)
	}
	if in != c.unexpected.moves {
		c.unexpected.moves, c.unexpected.window = in, c.ring.Stats().Ring
		c.unexpected.count(0)
	}
}

// OnCompletion handles a completion or an event of the channel's endpoint. It returns false
// if it belongs to something else.
//
// Hot path.
func (c *Channel) OnCompletion(cpl *fabric.Completion) bool {
	c.opt.Owner.Assert()
	a, b := c.ring.OnCompletion(cpl), c.rendezvous.OnCompletion(cpl)
	if a || b {
		c.learn.completed()
		if err := c.ring.Err(); err != nil {
			c.fail(err)
		}
		if err := c.rendezvous.Err(); err != nil {
			c.fail(err)
		}
		if c.err != nil {
			c.finish()
		}
	}
	return a || b
}

// Sleep sets or clears the sleep bit at the peer, see eager.Channel.Sleep.
func (c *Channel) Sleep(on bool) (done bool, err error) {
	c.opt.Owner.Assert()
	a, err := c.ring.Sleep(on)
	b, err2 := c.rendezvous.Sleep(on)
	return a && b, errors.Join(err, err2)
}

// Settle stops sending and reports whether the messages that have ended are placed at the
// peer, or never will be because the channel has failed. Call it, and poll the link, until
// it returns true.
func (c *Channel) Settle() bool {
	c.opt.Owner.Assert()
	c.settling = true
	if !c.live {
		return true
	}
	ring, rendezvous := c.ring.Settle(), c.rendezvous.Settle()
	return ring && rendezvous
}

// Overdue reports whether the peer owes the answer to an advertised receive, or its part of a
// message that both ends copy, for longer than limit and the time that a write of that may take. Such
// a receive, which is withdrawn, has its message, or whose memory is needed, cannot end before. The
// caller calls it at intervals, with the time since the last call in which the peer could have
// answered.
func (c *Channel) Overdue(passed, limit time.Duration) bool {
	c.opt.Owner.Assert()
	if c.err != nil {
		return false
	}
	part := c.rendezvous.Overdue(passed, limit, answerRate)
	return c.advertised.overdue(passed, limit) || part
}

// Sever declares that the peer and the link can no longer access this side's memory: the
// endpoint was closed and its requests have been flushed. It ends all remaining operations.
func (c *Channel) Sever(reason error) {
	c.opt.Owner.Assert()
	c.cutOff(reason)
}

// cutOff is Sever for Close, which is called when the channel has no owner any longer.
func (c *Channel) cutOff(reason error) {
	if reason == nil {
		reason = ErrClosed
	}
	c.fail(reason)
	c.finish()
	c.rendezvous.Sever(c.err)
	c.sever()
}

// Close ends all operations and releases the rings. The endpoint must be closed before, and
// its completions drained. Idempotent. Setup path.
func (c *Channel) Close() error {
	c.cutOff(ErrClosed)
	c.gather.abandon()
	err := c.rendezvous.Close()
	c.forget()
	if c.opt.Pins == nil {
		err = errors.Join(err, c.pins.Close())
	}
	return errors.Join(err, c.ring.Close())
}
