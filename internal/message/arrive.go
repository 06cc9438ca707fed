package message

// arrive delivers the messages whose turn it is, for as long as there are such
// at the head of one of the two streams. Short path.
func (c *Channel) arrive() (did bool) {
	for c.err == nil {
		switch {
		case c.lie != nil:
			c.fail(c.lie)
		case c.held.len() > 0 && c.held.head().seq == c.next:
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
