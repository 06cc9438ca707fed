package rdv

// Hold makes Accept and Refuse collect what they change until Release: messages of
// one descriptor that are accepted in between are then fetched in one run, where
// the first alone would keep the others waiting for its reads. The link is not polled
// and Progress not called in between. Short path.
func (c *Channel) Hold() { c.hold = true }

// Release goes on with what Accept and Refuse have changed since Hold. Short path.
func (c *Channel) Release() {
	c.hold = false
	for _, slot := range c.changed {
		t := &c.in[slot]
		t.changed = false
		c.advance(t)
	}
	c.changed = c.changed[:0]
}

// step advances t, now or at Release.
func (c *Channel) step(t *incoming) {
	switch {
	case !c.hold:
		c.advance(t)
	case !t.changed:
		t.changed = true
		c.changed = append(c.changed, uint16(t.id.slot()))
	}
}
