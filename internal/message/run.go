package message

import (
	"encoding/binary"

	"github.com/seed33544411/rma/gather"
)

// segments is a gather that is a run (gather.Splitter.Run), being taken apart.
type segments struct {
	sizes []byte // of all, width bytes each
	width int
	body  []byte
	base  uint64 // number of the first
	i     int    // the one at hand
	at    int    // where in body it is
	n     int    // how many there are; 0: no run is open
}

// takeRun delivers messages of the open run for as long as it is their turn and
// there is a receive for them, or room aside. Short path.
func (c *Channel) takeRun() (did bool) {
	r := &c.run
	seq := r.base + uint64(r.i)
	if seq != c.next {
		if seq < c.next {
			c.fail(&SequenceError{"ring", seq, c.next})
		}
		return false
	}
	alone := c.opt.Shared == nil || c.opt.Shared.posted.n == 0
	for {
		var n int
		if r.width == 1 {
			n = int(r.sizes[r.i])
		} else {
			n = gather.Size(r.sizes, r.width, r.i)
		}
		b := r.body[r.at : r.at+n : r.at+n]
		in, tag := c.posted.head, c.tag
		if in != nil && in.plain && alone && n <= len(in.Buf) && in.takes(tag) {
			if n == 8 {
				binary.LittleEndian.PutUint64(in.Buf, binary.LittleEndian.Uint64(b))
			} else {
				copy(in.Buf, b)
			}
			if c.posted.head = in.next; in.next == nil {
				c.posted.tail = nil
			}
			c.posted.n--
			in.next = nil
			in.matched = true
		} else if in = c.match(tag, n, true); in != nil {
			if in.Use != nil {
				c.parts[0] = b
				in.Use(tag, c.parts[:1])
				c.parts[0] = nil
			} else {
				c.small(in)
				copy(in.Buf, b)
			}
		} else if c.unexp.room(n) {
			copy(c.unexp.add(c.next, tag, n), b)
			c.stats.Unexpected++
		} else {
			return did
		}
		did = true
		c.next++
		r.i++
		r.at += n
		last := r.i == r.n
		if last {
			c.closeRun()
		} else if !c.tagsIn.same {
			var err error
			if c.tag, err = c.tagsIn.next(); err != nil {
				c.fail(err)
			}
		}
		if in != nil {
			c.received(in, tag, n, nil)
		}
		if last || c.err != nil {
			return true
		}
		alone = c.opt.Shared == nil || c.opt.Shared.posted.n == 0 // the callback may have changed that
	}
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
	var err error
	if c.tag, err = c.tagsIn.next(); err != nil {
		c.fail(err)
	}
	return c.err == nil
}

// closeRun gives the blocks of a run that is through back.
func (c *Channel) closeRun() {
	c.run = segments{}
	c.open = false
	if err := c.lease.Release(); err != nil {
		c.fail(err)
	}
}
