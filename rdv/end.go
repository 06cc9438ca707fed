package rdv

import (
	"errors"
	"fmt"
)

// sweep ends, after a failure, what no request is using any more: incoming
// transfers without reads in flight at once; outgoing ones, whose sources the
// peer may be reading, when it cannot any more.
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
	c.sweepOutgoing()
	if c.severed {
		c.sweepAdverts()
	}
}

// drain takes, after a failure, what the peer had said before: it ends transfers that
// were fetched and adverts that were written, and tells the layer above what it had
// announced, although nothing can be fetched any more. Nothing is answered.
func (c *Channel) drain() {
	if errors.Is(c.err, ErrProtocol) || !c.ring.Drain() {
		return
	}
	for range c.opt.Ring.Blocks { // an honest peer has written no more
		h, ok, err := c.ring.Recv(c.messages)
		if !ok || err != nil {
			return
		}
		switch Kind(h.Kind) {
		case KindFIN, KindDone, KindDecline, KindRTS, KindOffer:
			if c.dispatch(h, c.messages[:h.Len]) != nil {
				return
			}
		}
	}
}

// Fail ends the channel for a reason that lies outside of it, if it has not ended: what
// the peer may still touch ends at Sever.
func (c *Channel) Fail(reason error) {
	c.fail(reason)
	c.sweep()
}

// Sever says that the peer cannot reach this side's memory any more: the
// endpoint was closed, or the keys were withdrawn. It ends what has waited for
// that after the channel failed, and fails it with reason if it had not.
func (c *Channel) Sever(reason error) {
	if reason == nil {
		reason = ErrClosed
	}
	c.severed = true
	c.fail(reason)
	c.sweep()
}

// Close ends everything outstanding and releases the ring. The endpoint must
// be closed before, and its completions drained, so that neither the link nor
// the peer still uses memory of the transfers. After an error that wraps
// fabric.ErrInUse call it again. Idempotent. Setup path.
func (c *Channel) Close() error {
	if !c.closed {
		c.closed = true
		for i := range c.in {
			c.in[i].inflight = 0
		}
		for i := range c.jobs {
			c.jobs[i].inflight = 0
		}
		c.Sever(ErrClosed)
	}
	if err := errors.Join(c.stage.close(), c.ring.Close()); err != nil {
		return fmt.Errorf("close rendezvous channel: %w", err)
	}
	return nil
}
