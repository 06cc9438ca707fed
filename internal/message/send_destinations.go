package message

import (
	"errors"
	"math"
	"slices"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/rdv"
)

// direct is the mode of messages that are written to an advertised destination.
// The planner does not see them: the receiver has chosen their way.
const direct = logp.Mode(logp.NumModes)

// wants are the destinations that the peer has advertised, and what is needed to
// know which messages take them.
type wants struct {
	open []want     // by order of their receives
	free [64]uint64 // number of the last message that takes none, by hash of tag
	any  uint64     // of all tags
	late uint32     // adverts that came too late
	from int        // messages from that size on are written
}

type want struct {
	id  rdv.ID
	tag uint32
	len uint32
	any bool
}

// Advertised takes a destination, or declines it: what was assigned before may
// take the receive, unless it takes another one, or was delivered already when the
// peer advertised.
func (h handler) Advertised(a rdv.Advert) {
	c := h.Channel
	w := &c.wants
	anyTag := a.Note&noteAny != 0
	behind := (w.late - a.Note) & noteEpoch
	if a.Pos == 0 || a.Pos > c.seq+1 || anyTag && a.Tag != 0 || behind > noteEpoch/2 {
		c.refuse(peerError("advert for messages from %d on, tag %#x, note %#x; %d were sent", a.Pos, a.Tag, a.Note, c.seq))
		return
	}
	last := w.last(anyTag, a.Tag)
	if behind != 0 || last >= a.Pos {
		w.late++
		c.decline(a.ID, whyLate|uint32(last)&lateNumber)
		return
	}
	w.open = append(w.open, want{id: a.ID, tag: a.Tag, len: a.Len, any: anyTag})
}

// Revoked gives an advert back that no message takes yet. Those behind it that
// compete with it are declined as too late: this side has just lost count of which
// messages they take.
func (h handler) Revoked(a rdv.Advert) bool {
	c := h.Channel
	w := &c.wants
	at := slices.IndexFunc(w.open, func(x want) bool { return x.id == a.ID })
	if at < 0 {
		return false
	}
	x, kept := w.open[at], w.open[:at]
	w.late++
	for _, y := range w.open[at+1:] {
		if !x.any && !y.any && x.tag != y.tag {
			kept = append(kept, y)
			continue
		}
		w.late++
		c.decline(y.id, whyLate|uint32(w.last(y.any, y.tag))&lateNumber)
	}
	w.open = kept
	return true
}

// last is the number of the last message that a receive of that tag, or of any,
// may take and for which there was no advert.
func (w *wants) last(anyTag bool, tag uint32) uint64 {
	if anyTag {
		return w.any
	}
	return w.free[spread(tag)%uint32(len(w.free))]
}

// takes reports whether the receive behind x takes a message of tag.
func (x *want) takes(tag uint32) bool {
	if x.any {
		return tag < LibraryTags
	}
	return x.tag == tag
}

func (c *Channel) decline(id rdv.ID, why uint32) {
	c.longNew = true
	if err := c.long.Decline(id, why); err != nil {
		c.refuse(err)
	}
}

// assign finds the advert whose receive is going to take o, once for every
// message and in the order of their numbers. It does what matching does at the
// peer: receives for which o is too long end without it.
func (c *Channel) assign(o *Out) {
	if o.assigned {
		return
	}
	o.assigned = true
	w := &c.wants
	for i := 0; i < len(w.open); {
		x := w.open[i]
		if !x.takes(o.Tag) {
			i++
			continue
		}
		w.open = append(w.open[:i], w.open[i+1:]...)
		switch {
		case uint64(len(o.Data)) > uint64(x.len):
			c.decline(x.id, whySpoken)
			continue
		case len(o.Data) < w.from:
			c.decline(x.id, whySpoken)
		default:
			o.want, o.wanted = x.id, true
		}
		return
	}
	w.pass(o.Tag, o.seq)
}

// pass notes that message seq takes no advert.
func (w *wants) pass(tag uint32, seq uint64) {
	w.free[spread(tag)%uint32(len(w.free))] = seq
	if tag < LibraryTags {
		w.any = seq
	}
}

// write writes messages to the destinations that wait for them. It returns the
// number of the first one that could not go, and whether all went.
func (c *Channel) write() (stop uint64, all bool) {
	stop = math.MaxUint64
	for i, o := range c.first {
		if c.modes[i] != direct {
			continue
		}
		// Sources are registered even if the write has to wait: one that cannot be
		// is announced, in its turn.
		src, err := c.source(o)
		if err != nil {
			c.decline(o.want, whySpoken)
			o.wanted, c.modes[i] = false, logp.Scatter
			continue
		}
		if stop != math.MaxUint64 {
			continue
		}
		o.next = nil
		token := c.groups.put(o)
		c.gone[i] = true // Sent may come from within Write
		res, err := c.long.Write(o.want, o.seq, o.Tag, src, token)
		if err != nil || res != rdv.Accepted {
			c.groups.take(token)
			c.gone[i] = false
			if err != nil {
				c.fail(err)
			}
			c.writeBusy = true
			stop = o.seq
			continue
		}
		c.longNew = true
		c.stats.Written++
		c.count(logp.Scatter, 1)
	}
	return stop, stop == math.MaxUint64
}

// source is the memory of o, registered; valid until the next call.
func (c *Channel) source(o *Out) ([]fabric.SGE, error) {
	if len(o.Data) == 0 {
		return nil, nil
	}
	lkey := o.LKey
	if !o.Registered {
		if err := c.pinOut(o); err != nil {
			return nil, err
		}
		lkey = o.pin.lkey
	}
	c.src[0] = fabric.NewSGE(o.Data, lkey)
	return c.src[:], nil
}

// sendCopied announces a message whose memory cannot be registered: it is copied,
// piece by piece, to memory that is.
func (c *Channel) sendCopied(o *Out) bool {
	o.next = nil
	token := c.groups.put(o)
	_, res, err := c.long.SendUnregistered(scatterForm, o.seq, o.Data, rdv.Copy, o.Tag, token)
	if err != nil || res != rdv.Accepted {
		c.groups.take(token)
		if err != nil {
			c.fail(errors.Join(errNoMemory, err))
		}
		c.longBusy = true
		return false
	}
	c.longNew = true
	c.stats.Copied++
	c.count(logp.Scatter, 1)
	return true
}
