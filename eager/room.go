package eager

// Room is where the payload of a message is to stand, in up to three parts: in its
// first block, in the run behind it, and in the rest of the run at the start of
// the ring.
type Room struct {
	parts [3][]byte
}

// Next drops the part at hand and returns the one behind it: nil at the end.
func (r *Room) Next() []byte {
	r.parts[0], r.parts[1], r.parts[2] = r.parts[1], r.parts[2], nil
	return r.parts[0]
}

// Put copies b to at bytes behind the start of the part at hand, over as many parts
// as it takes, and returns the part at hand then and where in it b ends. What
// does not fit into the room is dropped.
func (r *Room) Put(at int, b []byte) (part []byte, end int) {
	part = r.parts[0]
	for {
		n := copy(part[at:], b)
		at, b = at+n, b[n:]
		if len(b) == 0 {
			return part, at
		}
		if part, at = r.Next(), 0; part == nil {
			return nil, 0
		}
	}
}

// Compose hands over a message of n bytes without its payload, and returns the room
// that the caller fills with it, all of it, before the next call of a method of the
// channel. Else as Stage, whose caller has the message in pieces. Short path.
func (c *Channel) Compose(e Envelope, n int) (Room, Result, error) {
	p, res, err := c.claim(&e, n)
	if res != Accepted && err == nil && c.first != c.staged {
		if err = c.flush(false); err == nil {
			p, res, err = c.claim(&e, n)
		}
	}
	if res != Accepted || err != nil {
		return Room{}, res, err
	}
	block, head := c.seal(&e, &p, n)
	r := Room{parts: [3][]byte{block[c.txRing.room()-p.fill : head]}}
	last := &r.parts[0]
	if p.run > 0 {
		if r.parts[1], last = c.out[p.at:p.at+p.whole], &r.parts[1]; p.whole < p.run {
			r.parts[2], last = c.out[:p.run-p.whole], &r.parts[2]
		}
	}
	end := len(*last) - p.pad
	clear((*last)[end:])
	*last = (*last)[:end]
	c.request(&p)
	return r, Accepted, nil
}
