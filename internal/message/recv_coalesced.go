package message

import (
	"encoding/binary"

	"github.com/seed33544411/rma/gather"
)

// segments is a gather that is a run (gather.Splitter.Run), being taken apart.
type segments struct {
	sizes []byte // of all, width bytes each
	width int
	body  []byte // of all, one behind the other
	base  uint64 // number of the first
	i     int    // the one at hand
	at    int    // where in body it is
	n     int    // how many there are; 0: no run is open
}

// openRun begins to take r apart. tagged: its first segment holds the tags of the others.
func (c *Channel) openRun(r segments, tagged bool) bool {
	if tagged {
		n := gather.Size(r.sizes, r.width, 0)
		b, err := c.tagsIn.reset(n)
		if err == nil {
			copy(b, r.body)
			err = c.tagsIn.open()
		}
		if err != nil {
			c.fail(err)
			return false
		}
		r.i, r.at = 1, n
	}
	c.run = r
	if r.i == r.n {
		c.closeRun() // tags of no message
		return c.err == nil
	}
	return c.nextTag()
}

// nextTag makes the next tag of the open gather that of the segment at hand.
func (c *Channel) nextTag() bool {
	var err error
	if c.tag, err = c.tagsIn.next(); err != nil {
		c.fail(err)
	}
	return err == nil
}

// closeRun gives the blocks of a run that is through back.
func (c *Channel) closeRun() {
	c.run = segments{}
	c.open = false
	if err := c.lease.Release(); err != nil {
		c.fail(err)
	}
}

// takeRun delivers messages of the open run for as long as it is their turn and
// there is a receive for them, or room aside. Short path.
func (c *Channel) takeRun() (did bool) {
	r := &c.run
	if seq := r.base + uint64(r.i); seq != c.next {
		if seq < c.next {
			c.fail(&SequenceError{"ring", seq, c.next})
		}
		return false
	}
	for r.i < r.n && c.err == nil {
		if c.tagsIn.same && r.width == 1 && !c.draining {
			to, free := c.opt.Shared.source(&c.posted, c.opt.From, c.tag)
			if free && len(c.matched) == 0 && c.takePlain() || to != nil && c.takeUsed(to) {
				did = true
				continue
			}
		}
		if !c.takeOne() {
			return did
		}
		did = true
	}
	if c.err == nil {
		c.closeRun()
	}
	return did
}

// changed counts changes of the receives from any of several channels.
func (c *Channel) changed() uint64 {
	if c.opt.Shared == nil {
		return 0
	}
	return c.opt.Shared.changed
}

// takePlain delivers messages of the run to receives that only want to have them copied,
// for as long as those come first. Callbacks hand in more. Short path.
func (c *Channel) takePlain() (did bool) {
	r, tag := &c.run, c.tag
	sizes, body, i, at := r.sizes[r.i:r.n], r.body, 0, r.at
	changed := c.changed()
	bytes := 0
	for i < len(sizes) {
		in, n := c.posted.head, int(sizes[i])
		if in == nil || !in.plain || n > len(in.Buf) || !in.takes(tag) {
			break
		}
		if n == 8 {
			binary.LittleEndian.PutUint64(in.Buf, binary.LittleEndian.Uint64(body[at:]))
		} else {
			copy(in.Buf, body[at:at+n])
		}
		i, at, bytes = i+1, at+n, bytes+n
		next := in.next
		if c.posted.head = next; next == nil {
			c.posted.tail = nil
		}
		c.posted.n--
		in.From, in.Buf = c.opt.From, nil
		in.matched = true
		c.next++
		if in.Done != nil {
			in.Done.Complete(tag, n, nil)
		}
		if c.err != nil || c.changed() != changed || len(c.matched) > 0 {
			break
		}
	}
	c.ads.dirty = c.ads.dirty || i > 0 // those behind may be advertised now
	return c.took(i, bytes)
}

// takeUsed has to use messages of the run in place, for as long as it does and they
// are for it. Short path.
func (c *Channel) takeUsed(to Source) (did bool) {
	r, tag, from := &c.run, c.tag, c.opt.From
	sizes, body, i, at := r.sizes[r.i:r.n], r.body, 0, r.at
	changed := c.changed()
	bytes := 0
	for i < len(sizes) {
		n := int(sizes[i])
		if !to.Use(from, tag, body[at:at+n:at+n]) {
			break
		}
		i, at, bytes = i+1, at+n, bytes+n
		c.next++
		if c.err != nil || c.changed() != changed {
			break
		}
	}
	return c.took(i, bytes)
}

// took notes that n messages of the run, of that many bytes, are through.
func (c *Channel) took(n, bytes int) (did bool) {
	c.stats.Received += uint64(n)
	c.stats.ReceivedBytes += uint64(bytes)
	c.run.i += n
	c.run.at += bytes
	return n > 0
}

// takeOne delivers the message of the run at hand, whatever the receive is.
func (c *Channel) takeOne() bool {
	r := &c.run
	n := gather.Size(r.sizes, r.width, r.i)
	b, tag := r.body[r.at:r.at+n:r.at+n], c.tag
	in := c.match(tag, n, true)
	switch {
	case in != nil && in.Use != nil:
		c.parts[0] = b
		c.use(in, tag, c.parts[:1])
		c.parts[0] = nil
	case in != nil:
		c.small(in)
		copy(in.Buf, b)
	case c.unexp.room(n):
		copy(c.unexp.add(c.next, tag, n), b)
		c.stats.Unexpected++
	default:
		return false
	}
	c.next++
	r.i++
	r.at += n
	if r.i < r.n && !c.tagsIn.same {
		c.nextTag()
	}
	if in != nil {
		c.received(in, tag, n, nil)
	}
	return true
}
