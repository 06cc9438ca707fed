package message

import (
	"errors"
	"fmt"
	"math"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/rdv"
	"github.com/seed33544411/rma/scatter"
)

// announce sends descriptors of the messages that the peer is to fetch, in
// order. It returns the number of the first message that could not go, which
// those in the ring must not overtake, and whether all went.
func (c *Channel) announce() (stop uint64, all bool) {
	most := int(c.batch.Limits.ScatterSegs)
	d := &c.desc
	d.Form = scatter.FormSequence
	for i := 0; i < len(c.first); {
		if c.modes[i] != logp.Scatter {
			i++
			continue
		}
		d.Messages, d.Regions, c.group = d.Messages[:0], d.Regions[:0], c.group[:0]
		var head, tail *Out
		for ; i < len(c.first) && len(d.Messages) < most; i++ {
			if c.modes[i] != logp.Scatter {
				continue
			}
			o := c.first[i]
			if head != nil && o.Tag != head.Tag {
				break
			}
			if err := c.describe(o); err != nil {
				if head != nil {
					break // its turn comes
				}
				if !c.sendCopied(o) {
					return o.seq, false
				}
				c.gone[i] = true
				continue
			}
			if o.next = nil; head == nil {
				head = o
			} else {
				tail.next = o
			}
			tail = o
			c.group = append(c.group, i)
		}
		if head == nil {
			continue
		}
		token := c.groups.put(head)
		_, res, err := c.long.Send(d, head.Tag, token)
		if err != nil || res != rdv.Accepted {
			c.groups.take(token)
			if err != nil {
				c.fail(err)
			}
			c.longBusy = true
			return head.seq, false
		}
		c.longNew = true
		c.stats.Descriptors++
		if c.learn.sign {
			c.learn.token = token
		} else {
			c.learn.left -= learnDescriptor - learnPlanned
		}
		c.count(logp.Scatter, len(d.Messages))
		for _, k := range c.group {
			c.gone[k] = true
		}
	}
	return math.MaxUint64, true
}

// describe appends a message and its memory to the descriptor, registering it
// where that was not done.
func (c *Channel) describe(o *Out) error {
	m := scatter.Message{Pos: o.seq, Size: uint32(len(o.Data))}
	if len(o.Data) > 0 {
		rkey := o.RKey
		if !o.Registered {
			if err := c.pinOut(o); err != nil {
				return err
			}
			rkey = o.pin.rkey
		}
		at := fabric.Addr(o.Data)
		r := c.desc.Regions
		if n := len(r); n > 0 && r[n-1].RKey == rkey && r[n-1].Addr+uint64(r[n-1].Len) == at &&
			uint64(r[n-1].Len)+uint64(len(o.Data)) <= math.MaxUint32 {
			r[n-1].Len += uint32(len(o.Data))
		} else {
			c.desc.Regions = append(r, scatter.Region{Addr: at, Len: uint32(len(o.Data)), RKey: rkey})
		}
	}
	c.desc.Messages = append(c.desc.Messages, m)
	return nil
}

// handler is what the rendezvous channel calls.
type handler struct{ *Channel }

// Sent ends a transfer of this side.
func (h handler) Sent(token uint64, err error) {
	if token == h.learn.token {
		h.fetched(err)
	}
	refused := errors.Is(err, rdv.ErrRefused)
	for i, o := 0, h.groups.take(token); o != nil; i++ {
		next, why := o.next, err
		switch {
		case refused && h.long.Refused(i):
			why = fmt.Errorf("%w: %w", ErrUnwanted, err)
		case refused:
			why = nil
		}
		h.sent(o, why)
		o = next
	}
}

const scatterForm = scatter.FormSequence
