package message

import (
	"cmp"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/gather"
)

// takeRing delivers the message at the head of the ring, if it is there and its
// turn has come. Short path.
func (c *Channel) takeRing() bool {
	if c.run.n > 0 {
		return c.takeRun()
	}
	if c.open {
		return c.takeSegment()
	}
	h, ok, err := c.ring.Peek()
	if err != nil {
		c.fail(err)
	}
	if !ok || err != nil {
		return false
	}
	if h.Kind != kindPlain {
		return c.openGather(h)
	}
	if !h.HasMeta {
		c.fail(peerError("ring message without number"))
		return false
	}
	tag := uint32(h.Meta >> 32)
	switch ahead := int32(uint32(h.Meta) - uint32(c.next)); {
	case ahead < 0:
		c.fail(&SequenceError{"ring", h.Meta & 0xffffffff, c.next & 0xffffffff})
		return false
	case ahead > 0:
		return false // descriptors come first
	}
	in := c.match(tag, h.Len, true)
	var dst []byte
	switch {
	case in != nil && in.Use != nil:
		return c.useRing(in, tag)
	case in != nil:
		c.small(in)
		dst = in.Buf
	case c.unexp.room(h.Len):
		dst = c.unexp.add(c.next, tag, h.Len)
		c.stats.Unexpected++
	default:
		return false // stays there; the sender runs out of credit
	}
	c.next++
	if _, _, err = c.ring.Recv(dst); err != nil {
		c.fail(err)
	}
	if in != nil {
		c.received(in, tag, h.Len, err)
	}
	return true
}

// useRing lets a receive use a ring message in place.
func (c *Channel) useRing(in *In, tag uint32) bool {
	l, h, _, err := c.ring.Lease()
	if err == nil {
		n := l.Segments()
		for i := range n {
			if c.parts[i], err = l.Segment(i); err != nil {
				break
			}
		}
		if err == nil {
			c.use(in, tag, c.parts[:n])
		}
		c.parts = [3][]byte{}
		err = cmp.Or(err, l.Release())
	}
	c.next++
	if err != nil {
		c.fail(err)
	}
	c.received(in, tag, h.Len, err)
	return true
}

// openGather begins to take the gather at the head of the ring apart.
func (c *Channel) openGather(h eager.Head) bool {
	if h.Kind != kindGather && h.Kind != kindTagged {
		c.fail(peerError("ring message of kind %d", h.Kind))
		return false
	}
	var ok bool
	var err error
	if c.lease, _, ok, err = c.ring.Lease(); err != nil || !ok {
		c.fail(cmp.Or(err, peerError("ring message that vanished")))
		return false
	}
	c.open = true
	if err = c.lease.Split(&c.split, gather.Seq); err != nil {
		c.fail(peerError("gather: %w", err))
		return false
	}
	c.tagsIn.none()
	if base, sizes, width, body, ok := c.split.Run(); ok {
		return c.openRun(segments{base: base, sizes: sizes, width: width, body: body, n: len(sizes) / width}, h.Kind == kindTagged)
	}
	if h.Kind == kindTagged {
		if !c.split.Next() {
			c.fail(peerError("gather without the tags it should have"))
			return false
		}
		var b []byte
		if b, err = c.tagsIn.reset(int(c.split.Entry().Size)); err == nil {
			c.split.Copy(b)
			err = c.tagsIn.open()
		}
		if err != nil {
			c.fail(err)
			return false
		}
	}
	return c.nextSegment()
}

// nextSegment goes to the next message of the open gather, or closes it.
func (c *Channel) nextSegment() bool {
	if c.split.Next() {
		tag, err := c.tagsIn.next()
		if err != nil {
			c.fail(err)
			return false
		}
		c.tag = tag
		return true
	}
	c.open = false
	if err := cmp.Or(c.split.Err(), c.lease.Release()); err != nil {
		c.fail(err)
		return false
	}
	return true
}

// takeSegment delivers the current message of the open gather, if its turn has
// come.
func (c *Channel) takeSegment() bool {
	e := c.split.Entry()
	switch {
	case e.At < c.next:
		c.fail(&SequenceError{"ring", e.At, c.next})
		return false
	case e.At > c.next:
		return false
	}
	in := c.match(c.tag, int(e.Size), true)
	switch {
	case in != nil && in.Use != nil:
		parts, n := c.split.Parts()
		c.use(in, c.tag, parts[:n])
	case in != nil:
		c.small(in)
		c.split.Copy(in.Buf)
	case c.unexp.room(int(e.Size)):
		c.split.Copy(c.unexp.add(c.next, c.tag, int(e.Size)))
		c.stats.Unexpected++
	default:
		return false
	}
	c.next++
	tag := c.tag
	ok := c.nextSegment()
	if in != nil {
		c.received(in, tag, int(e.Size), nil)
	}
	return ok
}
