package message

import "github.com/seed33544411/rma/logp"

// SendNow sends a message that may go by itself, before it returns: nothing waits
// before it, it is so small that nothing beats the ring, and the ring of the peer is
// mapped here and has room. data is the caller's again then. Else it reports false
// and has done nothing: Send it. Short path.
func (c *Channel) SendNow(tag uint32, data []byte) bool {
	// The turn of a message that is to be timed is Progress's, as is whatever has to
	// do with adverts of the peer.
	if !c.live || c.backlog.n > 0 || len(data) > c.alone || c.learn.left <= 1 || len(c.wants.open) > 0 {
		return false
	}
	if !c.ring.SendShort(kindPlain, meta(tag, c.seq+1), data) {
		if err := c.ring.Err(); err != nil {
			c.fail(err)
		}
		return false
	}
	c.seq++
	c.learn.left--
	c.wants.pass(tag, c.seq)
	c.stats.Messages[logp.Eager]++
	c.stats.Sent++
	c.stats.SentBytes += uint64(len(data))
	return true
}

// Look delivers the message at the head of the ring if it is there and its turn has
// come, and does nothing else that Progress does: for those who wait for a message and
// look often. Progress must be called as well, if less often. Where there is
// nothing it costs one load. Short path.
func (c *Channel) Look() bool {
	return c.ring.Waiting() && c.live && c.lie == nil && c.takeRing()
}
