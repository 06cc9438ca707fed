package rdv

import (
	"errors"
	"fmt"
)

// sweep ends, after a failure, operations whose memory no request uses any longer: incoming
// transfers without reads in flight at once; outgoing ones, whose sources the peer may be
// reading, when it no longer can.
func (c *Channel) sweep() {
	if c.err == nil {
		return
	}
	if !c.drained {
		c.drained = true
		c.drain()
	}
	c.dropStaged()
	c.sweepIncoming()
	c.sweepJobs()
	c.sweepShares()
	c.sweepOutgoing()
	if c.severed {
		c.sweepAdverts()
	}
}

// drain processes, after a failure, the messages that the peer had sent before: it ends
// transfers that were fetched and adverts that were written, and passes announcements to
// the layer above, although nothing can be fetched any longer. Nothing is answered.
func (c *Channel) drain() {
	if errors.Is(c.err, ErrProtocol) || !c.ring.Drain() {
		return
	}
	if c.messages == nil && !c.firstMessage() {
		return
	}
	for { // the ring ends after what a correct peer may have written
		h, ok, err := c.ring.Recv(c.messages)
		if !ok || err != nil {
			return
		}
		switch Kind(h.Kind) {
		case KindFIN, KindDone, KindDecline, KindRTS, KindOffer, KindPlaced, KindFilled:
			if c.dispatch(h, c.messages[:h.Len]) != nil {
				return
			}
		}
	}
}

// Fail ends the channel for an external reason, unless it has ended. Operations whose
// memory the peer may still access end at Sever.
func (c *Channel) Fail(reason error) {
	c.fail(reason)
	c.sweep()
}

// Sever declares that the peer can no longer access this side's memory: the endpoint was
// closed, or the keys were withdrawn. It ends operations that have waited for that since
// the channel failed, and fails the channel with reason if it had not failed.
func (c *Channel) Sever(reason error) {
	if reason == nil {
		reason = ErrClosed
	}
	c.severed = true
	c.fail(reason)
	c.sweep()
}

// Close ends everything outstanding and releases the ring. The endpoint must be closed
// before, and its completions drained, so that neither the link nor the peer uses memory of
// the transfers any longer. If the error wraps fabric.ErrInUse, call Close again.
// Idempotent. Setup path.
func (c *Channel) Close() error {
	if !c.closed {
		c.closed = true
		for i := range c.in {
			c.in[i].inflight = 0
		}
		for i := range c.jobs {
			c.jobs[i].inflight = 0
		}
		for _, sh := range c.shares.each() {
			sh.state = sliceOver
		}
		c.Sever(ErrClosed)
	}
	if err := errors.Join(c.stage.close(), c.claims.close(), c.ring.Close()); err != nil {
		return fmt.Errorf("close rendezvous channel: %w", err)
	}
	return nil
}
