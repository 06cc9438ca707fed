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

// put stages a message, eager: copied, or in place where that is cheaper. The
// message is no longer the caller's if the ring took it. Short path.
func (c *Channel) put(o *Out) bool {
	e := eager.Envelope{Kind: kindPlain, HasMeta: true, Meta: meta(o.Tag, o.seq)}
	var pos uint64
	var res eager.Result
	var err error
	inPlace := o.Registered && len(o.Data) >= c.inPlace
	if inPlace {
		c.piece[0] = gather.Piece{Data: o.Data, LKey: o.LKey, InPlace: true}
		pos, res, err = c.ring.StageVec(e, c.piece[:])
	} else {
		res, err = c.ring.Stage(e, o.Data)
	}
	if !c.taken(res, err) {
		return false
	}
	c.count(logp.Eager, 1)
	if inPlace {
		o.pos = pos
		c.flying.push(o)
	} else {
		c.sent(o, nil)
	}
	return true
}

// sendAlone sends the only message there is, eager. Short path.
func (c *Channel) sendAlone() bool {
	o := c.backlog.pop()
	if c.assign(o); o.wanted { // not so small that anybody would plan it
		o.wanted = false
		c.decline(o.want, whySpoken)
	}
	if !c.put(o) {
		if c.err != nil {
			c.sent(o, c.err)
		} else {
			c.backlog.push(o)
		}
		return false
	}
	if _, err := c.ring.Flush(); err != nil {
		c.fail(err)
	}
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
	from := -1 // first of a gather of the plan
	for i := 0; i <= n && all; i++ {
		if i < n && c.modes[i] == logp.Gather {
			if from >= 0 && c.part[i] != c.part[from] {
				if all = c.gather(from, i); !all {
					break
				}
				from = -1
			}
			if from < 0 {
				from = i
			}
			continue
		}
		if i < n && (c.modes[i] == logp.Scatter || c.modes[i] == direct) {
			continue
		}
		if from >= 0 {
			all = c.gather(from, i)
			from = -1
		}
		if all && i < n {
			if all = c.put(c.first[i]); all {
				c.gone[i] = true
			}
		}
	}
	if c.err == nil {
		if c.learn.sign {
			c.learn.pos, c.learn.signed = c.ring.Sign()
		}
		if _, err := c.ring.Flush(); err != nil {
			c.fail(err)
			return false
		}
	}
	return all && c.err == nil
}

// gather stages the messages of first[from:to] that are to be gathered, in as
// many ring messages as it takes.
func (c *Channel) gather(from, to int) bool {
	if run, made, ok := c.asRun(from, to); ok {
		if !c.couple(run, &made) {
			return false
		}
		for i := from; i < to; i++ {
			if o := c.first[i]; c.modes[i] == logp.Gather {
				c.gone[i] = true
				c.sent(o, nil)
			}
		}
		clear(run)
		return true
	}
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
		if !c.taken(res, err) {
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
