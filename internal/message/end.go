package message

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/seed33544411/rma/fabric"
)

// fail ends the channel: messages that wait end at once, receives when what came before
// the failure has been taken (finish), and what the link or the peer may still touch at
// Sever. The endpoint's own reason is added to one that does not say it.
func (c *Channel) fail(err error) {
	if c.err != nil {
		return
	}
	switch why := c.ep.Err(); {
	case why == nil || errors.Is(err, why):
	case errors.Is(why, fabric.ErrPeerGone):
		err = why
	default:
		err = fmt.Errorf("%w: %w", err, why)
	}
	c.err, c.live = err, false
	c.endBacklog()
}

func (c *Channel) endBacklog() {
	for c.backlog.n > 0 {
		c.sent(c.backlog.pop(), c.err)
	}
}

// broken is why nothing can be fetched from the peer any more, nil while it can.
func (c *Channel) broken() error { return cmp.Or(c.err, c.long.Err()) }

// finish takes in what the peer had sent before the channel failed. Receives get it in
// order, and what none asks for is put aside for later ones. A message that was only
// announced is lost; it keeps its place, and no receive that would take it gets one
// behind it. Not to be called from within a delivery.
func (c *Channel) finish() {
	if c.finished || c.draining || c.err == nil {
		return
	}
	reason := c.err
	c.draining = true
	c.long.Fail(reason) // answers of the peer count, what it announced is held
	for _, in := range c.matched {
		in.listed = false
		if !in.here {
			c.unexp.bury(in.seq, in.tag)
		}
		if in.here || in.gone { // else the link may still write there
			c.lost = append(c.lost, in)
		}
	}
	c.matched = nil
	if c.lie == nil && !errors.Is(reason, ErrPeer) && !errors.Is(reason, ErrClosed) && c.ring.Drain() {
		c.err, c.unexp.limit = nil, math.MaxInt // the ring bounds what is left
		c.partLost()
		c.deliver()
		c.err = reason
		c.endBacklog()
	}
	c.draining, c.finished = false, true
	c.ads.written, c.ads.waiting = nil, 0
	for _, in := range c.lost {
		c.endLost(in)
	}
	c.lost = nil
	for c.posted.n > 0 {
		c.received(c.posted.pop(), 0, 0, reason)
	}
}

// partLost takes the receives of this channel that would take a lost message off the list.
func (c *Channel) partLost() {
	for before, in := (*In)(nil), c.posted.head; in != nil; {
		next := in.next
		if c.unexp.hides(in) {
			c.posted.remove(before, in)
			c.lost = append(c.lost, in)
		} else {
			before = in
		}
		in = next
	}
}

// bury notes a message that is lost, in its turn.
func (c *Channel) bury(seq uint64, tag uint32) {
	c.unexp.bury(seq, tag)
	c.partLost()
	c.next = seq + 1
}

// lose ends a receive whose message was lost with the connection.
func (c *Channel) lose(in *In) {
	switch {
	case c.finished:
		c.endLost(in)
	case in.listed:
		in.gone = true // finish sees it
	default:
		c.unexp.bury(in.seq, in.tag)
		c.lost = append(c.lost, in)
	}
}

// endLost ends a receive whose message was lost. One from any of several channels goes
// back to its place: others may have a message for it.
func (c *Channel) endLost(in *In) {
	if s := c.opt.Shared; in.shared && s.Again != nil {
		c.pins.release(&in.pin)
		in.inState = inState{}
		s.Again(in)
		return
	}
	c.received(in, in.tag, 0, c.err)
}

// Settle sends no more messages and reports whether those that have ended are placed at
// the peer, or never will be because the channel has failed. Call it, and poll the link,
// until it does.
func (c *Channel) Settle() bool {
	c.settling = true
	if !c.live {
		return true
	}
	ring, long := c.ring.Settle(), c.long.Settle()
	return ring && long
}

// Sever says that the peer and the link cannot reach this side's memory any
// more: the endpoint was closed and its requests have come back. It ends all
// that has not ended.
func (c *Channel) Sever(reason error) {
	if reason == nil {
		reason = ErrClosed
	}
	c.fail(reason)
	c.finish()
	c.long.Sever(c.err)
	for c.flying.n > 0 {
		c.sent(c.flying.pop(), c.err)
	}
}

// Close ends everything and releases the rings. The endpoint must be closed
// before, and its completions drained. Idempotent. Setup path.
func (c *Channel) Close() error {
	c.Sever(ErrClosed)
	if c.open {
		c.open = false
		_ = c.lease.Release() // the ring goes with it
	}
	err := c.long.Close()
	for h, in := range c.fetch {
		delete(c.fetch, h)
		c.endLost(in)
	}
	c.unexp.clear()
	if c.opt.Pins == nil {
		err = errors.Join(err, c.pins.Close())
	}
	return errors.Join(err, c.ring.Close())
}
