package message

// arrive delivers the messages whose turn it is. Announced ones are fetched together
// if they are. Short path.
func (c *Channel) arrive() (did bool) {
	if c.held.len() == 0 {
		return c.deliver()
	}
	c.long.Hold()
	did = c.deliver()
	c.long.Release()
	return did
}

// deliver gives messages to receives for as long as there are such at the head of
// one of the streams. Short path.
func (c *Channel) deliver() (did bool) {
	for c.err == nil {
		switch {
		case c.lie != nil:
			c.fail(c.lie)
		case len(c.ads.written) > 0 && c.ads.written[0].seq <= c.next:
			if n := c.ads.written[0].seq; n < c.next {
				c.fail(&SequenceError{"written messages", n, c.next})
				break
			}
			c.takeWritten()
			did = true
		case c.held.len() > 0 && c.held.head().seq <= c.next:
			if n := c.held.head().seq; n < c.next {
				c.fail(&SequenceError{"descriptors", n, c.next})
				break
			}
			c.takeHeld()
			did = true
		case c.takeRing():
			did = true
		default:
			return did
		}
	}
	return did
}
