package rdv

import (
	"errors"
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/scatter"
)

// States of an incoming transfer.
const (
	inFree   uint8 = iota
	inActive       // messages are waited for, fetched, ended one by one
	inEnding       // all ended: FIN waits for room in the ring
)

// States of a message of an incoming transfer.
const (
	msgWaiting uint8 = iota // for a destination
	msgMatched              // for its turn
	msgRunning              // part of the current run
	msgEnded
)

// incoming is a transfer that the peer announced. Its messages are fetched in
// runs: a run is a stretch of neighbours that have destinations, read as one
// stream. One run of a transfer is under way at a time.
type incoming struct {
	d    scatter.Descriptor
	msgs []message
	dest []fabric.SGE // pieces of matched messages, in the order of matching
	plan scatter.Plan

	run, runEnd int    // messages [run, runEnd) are under way; run moves as they end
	upto        int    // messages before this one are covered by requests handed out
	planned     uint64 // stream position up to which requests were handed out

	inflight int // requests staged or posted
	left     int // messages not ended
	id       ID
	tag      uint32
	status   uint32 // for the FIN
	gen      uint16
	state    uint8

	// Offers: chunks announced, given to the plan, fetched; bytes announced.
	announced, fed, fetched uint32
	bytes                   uint64

	matching bool // inside onRTS: runs start at its end
	queued   bool // in turns
	changed  bool // in Channel.changed
	chunked  bool // an offer: d.Regions are its chunks, in a ring
	acking   bool // an acknowledgement is queued
	waited   bool // a destination came later than the announcement
}

type message struct {
	end    uint64 // position in the stream behind the message
	dst, n uint32 // pieces in dest
	state  uint8
	unread bool // refused: the FIN says so
}

// start is the position of message i in the stream.
func (t *incoming) start(i int) uint64 {
	if i == 0 {
		return 0
	}
	return t.msgs[i-1].end
}

func (t *incoming) describe(i int) Incoming {
	m := &t.d.Messages[i]
	return Incoming{Pos: m.Pos, Size: m.Size, Tag: t.tag, Form: t.d.Form, Handle: makeHandle(t.id, i)}
}

// claim takes the slot that the peer has chosen for a new transfer.
func (c *Channel) claim(k Kind, id ID) (*incoming, error) {
	if id.slot() >= len(c.in) {
		return nil, &ProtocolError{k, id, ErrTooMany, uint64(id.slot()), uint64(len(c.in))}
	}
	t := &c.in[id.slot()]
	if t.state != inFree || id.gen() != t.gen+1 {
		return nil, &ProtocolError{k, id, ErrIDReused, uint64(id.gen()), uint64(t.gen + 1)}
	}
	return t, nil
}

// begin makes t an active transfer of the messages in t.d.
func (t *incoming) begin(id ID, tag uint32) {
	t.id, t.gen, t.tag = id, id.gen(), tag
	t.state, t.status, t.waited = inActive, statusOK, false
	t.run, t.runEnd, t.upto, t.planned = 0, 0, 0, 0
	t.chunked, t.acking = false, false
	t.announced, t.fed, t.fetched, t.bytes = 0, 0, 0, 0
	t.dest, t.msgs = t.dest[:0], t.msgs[:0]
	t.left = len(t.d.Messages)
	var end uint64
	for i := range t.d.Messages {
		end += uint64(t.d.Messages[i].Size)
		t.msgs = append(t.msgs, message{end: end})
	}
}

// onRTS takes a descriptor and asks for destinations.
func (c *Channel) onRTS(id ID, tag uint32, payload []byte) error {
	t, err := c.claim(KindRTS, id)
	if err != nil {
		return err
	}
	rest, err := t.d.Parse(payload, c.opt.bounds())
	if err != nil {
		return &ProtocolError{KindRTS, id, err, uint64(len(payload)), 0}
	}
	if len(rest) > 0 {
		return &ProtocolError{KindRTS, id, ErrMessage, uint64(len(payload)), uint64(len(payload) - len(rest))}
	}
	c.fetching++
	t.begin(id, tag)
	c.match(t)
	return nil
}

// match asks for the destination of every message of a new transfer.
func (c *Channel) match(t *incoming) {
	t.matching = true
	for i := range t.msgs {
		dst, v := c.h.Match(t.describe(i))
		if t.msgs[i].state != msgWaiting {
			continue // the handler has called Accept or Refuse for it already
		}
		switch v {
		case Take:
			c.take(t, i, dst)
		case Later:
		default:
			c.endMessage(t, i, ErrRefused)
		}
	}
	t.matching = false
	c.advance(t)
}

// take gives message i its destination. The reads start with the next run.
func (c *Channel) take(t *incoming, i int, dst []fabric.SGE) {
	var n uint64
	for k := range dst {
		n += uint64(dst[k].Len)
	}
	m := &t.msgs[i]
	if n != uint64(t.d.Messages[i].Size) {
		c.endMessage(t, i, ErrPieces)
		return
	}
	m.dst, m.n, m.state = uint32(len(t.dest)), uint32(len(dst)), msgMatched
	t.dest = append(t.dest, dst...)
}

// Accept gives a message that was left for later its destination; dst as in
// Matcher.Match. ErrHandle means that it is over, as Received has said. Short
// path.
func (c *Channel) Accept(h Handle, dst []fabric.SGE) error {
	t, i := c.findMessage(h)
	switch {
	case c.err != nil:
		return c.err
	case t == nil || t.msgs[i].state != msgWaiting:
		return fmt.Errorf("accept message %d of %v: %w", h.index(), h.id(), ErrHandle)
	}
	t.waited = true
	c.take(t, i, dst)
	c.step(t)
	return nil
}

// Refuse ends a message that was left for later, or that was taken and is not
// being fetched yet; Received is not called for it. ok is false if it is being
// fetched: Received will come. Short path.
func (c *Channel) Refuse(h Handle) (ok bool, err error) {
	t, i := c.findMessage(h)
	switch {
	case c.err != nil:
		return false, c.err
	case t == nil || t.msgs[i].state == msgEnded:
		return false, fmt.Errorf("refuse message %d of %v: %w", h.index(), h.id(), ErrHandle)
	case t.msgs[i].state == msgRunning:
		return false, nil
	}
	c.endMessage(t, i, ErrRefused)
	c.step(t)
	return true, nil
}

func (c *Channel) findMessage(h Handle) (*incoming, int) {
	id, i := h.id(), h.index()
	if id.slot() >= len(c.in) {
		return nil, 0
	}
	if t := &c.in[id.slot()]; t.state == inActive && t.gen == id.gen() && i < len(t.msgs) {
		return t, i
	}
	return nil, 0
}

// endMessage ends message i and tells, unless the handler has refused it.
func (c *Channel) endMessage(t *incoming, i int, err error) {
	m := &t.msgs[i]
	if m.state == msgEnded {
		return
	}
	m.state = msgEnded
	t.left--
	if err == nil {
		c.stats.Messages++
		c.stats.Bytes += uint64(t.d.Messages[i].Size)
	} else {
		t.status, m.unread = statusRefused, true
	}
	if !errors.Is(err, ErrRefused) {
		c.h.Received(t.describe(i), err)
	}
}

// abandon ends t after the channel failed. Nothing is in flight for it.
func (c *Channel) abandon(t *incoming) {
	t.matching = true
	for i := range t.msgs {
		c.endMessage(t, i, c.err)
	}
	t.matching = false
	c.freeIncoming(t)
}

func (c *Channel) freeIncoming(t *incoming) {
	if t.state != inFree {
		c.fetching--
	}
	t.state, t.queued = inFree, false
}
