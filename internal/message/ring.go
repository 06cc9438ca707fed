package message

import (
	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/gather"
	"github.com/seed33544411/rma/logp"
)

// Kinds of ring messages (eager.Envelope.Kind).
const (
	kindPlain  = 1 // one message; Meta is its tag and the low half of its number
	kindGather = 2 // a gather of messages without tags (0)
	kindTagged = 3 // a gather whose first segment holds the tags of the others
)

func meta(tag uint32, seq uint64) uint64 { return uint64(tag)<<32 | seq&0xffffffff }

// sendAlone sends the only message there is, eager. Short path.
func (c *Channel) sendAlone(o *Out) bool {
	res, err := c.ring.Send(eager.Envelope{Kind: kindPlain, HasMeta: true, Meta: meta(o.Tag, o.seq)}, o.Data)
	switch {
	case err != nil:
		c.fail(err)
		return false
	case res != eager.Accepted:
		c.refused()
		return false
	}
	c.backlog.pop()
	c.count(logp.Eager, 1)
	c.sent(o, nil)
	return true
}

// fill puts the messages that go through the ring there, in order, up to number
// stop, and flushes. It reports whether all went.
func (c *Channel) fill(stop uint64) (all bool) {
	n := 0 // as many of the first may go
	for n < len(c.first) && c.first[n].seq < stop {
		n++
	}
	all = true
	from := -1 // first of a run to gather
	for i := 0; i <= n && all; i++ {
		if i < n && c.modes[i] == logp.Gather {
			if from < 0 {
				from = i
			}
			continue
		}
		if i < n && c.modes[i] == logp.Scatter {
			continue
		}
		if from >= 0 {
			all = c.gather(from, i)
			from = -1
		}
		if all && i < n {
			all = c.stage(i)
		}
	}
	if c.err == nil {
		if _, err := c.ring.Flush(); err != nil {
			c.fail(err)
			return false
		}
	}
	return all && c.err == nil
}

// stage stages one message, eager.
func (c *Channel) stage(i int) bool {
	o := c.first[i]
	res, err := c.ring.Stage(eager.Envelope{Kind: kindPlain, HasMeta: true, Meta: meta(o.Tag, o.seq)}, o.Data)
	switch {
	case err != nil:
		c.fail(err)
		return false
	case res != eager.Accepted:
		c.refused()
		return false
	}
	c.gone[i] = true
	c.count(logp.Eager, 1)
	c.sent(o, nil)
	return true
}

// gather stages the messages of first[from:to] that are to be gathered, in as
// many ring messages as it takes.
func (c *Channel) gather(from, to int) bool {
	tagged := false
	c.packs = append(c.packs[:0], gather.Message{}) // for the tags
	for i := from; i < to; i++ {
		if o := c.first[i]; c.modes[i] == logp.Gather {
			tagged = tagged || o.Tag != 0
			c.packs = append(c.packs, gather.Message{Data: o.Data, At: o.seq, LKey: o.LKey, Registered: o.Registered})
		}
	}
	i := from
	for left := c.packs[1:]; len(left) > 0; {
		e, msgs, extra := eager.Envelope{Kind: kindGather}, left, 0
		if tagged {
			e.Kind, extra = kindTagged, 1
			c.tags = c.appendTags(c.tags[:0], i, to, len(left))
			msgs = c.packs[len(c.packs)-len(left)-1:]
			msgs[0] = gather.Message{Data: c.tags, At: left[0].At - 1}
		}
		n, err := c.packer.Pack(msgs)
		if n -= extra; err != nil || n < 1 {
			if err == nil {
				err = gather.ErrTooLarge
			}
			// Planned as a gather, so it fits: unless the limits of the plan are
			// not those of the ring.
			c.fail(err)
			return false
		}
		pos, res, err := c.ring.StageVec(e, c.packer.Pieces())
		switch {
		case err != nil:
			c.fail(err)
			return false
		case res != eager.Accepted:
			c.refused()
			return false
		}
		c.stats.Gathers++
		c.count(logp.Gather, n)
		pieces := c.packer.Pieces()[1+extra:]
		for k := range n {
			for c.modes[i] != logp.Gather {
				i++
			}
			o := c.first[i]
			c.gone[i] = true
			i++
			if pieces[k].InPlace {
				o.pos = pos
				c.flying.push(o)
			} else {
				c.sent(o, nil)
			}
		}
		left = left[n:]
	}
	return true
}
