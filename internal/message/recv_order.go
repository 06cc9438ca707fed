package message

import "slices"

// Receives that compete for messages end in the order of these, although some are fetched
// and others are here: what is received of a peer that dies meanwhile is then the
// beginning of what it had sent. A receive that was matched and is being fetched is in
// Channel.matched, and so is one that has its message but stands behind such a one. Those of
// a Source are not: it is told of the order, and keeps it itself.

// rivals reports whether in competes with one of ins: either might have taken the other's
// message.
func rivals(ins []*In, in *In) bool {
	for _, x := range ins {
		if x.takes(in.tag) || in.takes(x.tag) {
			return true
		}
	}
	return false
}

// fetching notes that in is being fetched under h.
func (c *Channel) fetching(in *In, a *announced) {
	c.fetch[a.handle] = in
	in.late = in.Use != nil
	if !in.loose {
		in.listed, in.here = true, false
		c.matched = append(c.matched, in)
	}
}

// use gives a receive its message where it lies, or a copy of it when its turn comes.
func (c *Channel) use(in *In, tag uint32, parts [][]byte) {
	in.tag = tag
	if len(c.matched) > 0 && !in.loose && (c.releasing || rivals(c.matched, in)) {
		in.Buf, in.late = slices.Concat(parts...), true
		return
	}
	in.Use(tag, parts)
}

// inTurn ends a receive when those before it that compete with it have ended, and then
// those that have waited for it.
func (c *Channel) inTurn(in *In, n int, err error) {
	in.size = uint32(n)
	switch {
	case in.listed && err == nil:
		in.here = true
	case in.listed:
		c.matched = slices.DeleteFunc(c.matched, func(x *In) bool { return x == in })
		in.listed = false
		c.over(in, in.tag, n, err)
	case err != nil || !c.releasing && !rivals(c.matched, in):
		c.over(in, in.tag, n, err)
		return
	default:
		in.listed, in.here = true, true
		c.matched = append(c.matched, in)
		return
	}
	c.release()
}

// release ends the receives whose turn has come.
func (c *Channel) release() {
	if c.releasing {
		return
	}
	c.releasing = true
	for {
		kept := c.matched[:0]
		for _, in := range c.matched {
			if in.here && !rivals(kept, in) {
				c.ready = append(c.ready, in)
			} else {
				kept = append(kept, in)
			}
		}
		clear(c.matched[len(kept):])
		c.matched = kept
		if len(c.ready) == 0 {
			break
		}
		for i, in := range c.ready {
			c.ready[i] = nil
			in.listed = false
			c.over(in, in.tag, int(in.size), nil)
		}
		c.ready = c.ready[:0]
	}
	c.releasing = false
}
