package rdv

import (
	"github.com/seed33544411/rma/scatter"
)

// onOffer takes a message that comes in chunks.
func (c *Channel) onOffer(id ID, tag uint32, payload []byte) error {
	t, err := c.claim(KindOffer, id)
	if err != nil {
		return err
	}
	form, m, why := parseOffer(payload)
	if why != nil {
		return &ProtocolError{KindOffer, id, why, uint64(len(payload)), offerSize}
	}
	t.d.Form = form
	t.d.Messages = append(t.d.Messages[:0], m)
	c.fetching++
	t.begin(id, tag)
	t.chunked = true
	t.d.Regions = t.d.Regions[:0]
	for len(t.d.Regions) < c.opt.Chunks {
		t.d.Regions = append(t.d.Regions, scatter.Region{})
	}
	c.match(t)
	return nil
}

// onChunk takes the place of the next chunk of an offer.
func (c *Channel) onChunk(id ID, payload []byte) error {
	var t *incoming
	if id.slot() < len(c.in) {
		t = &c.in[id.slot()]
	}
	if t == nil || t.state != inActive || t.gen != id.gen() || !t.chunked || t.msgs[0].state != msgRunning {
		return &ProtocolError{KindChunk, id, ErrUnknownID, uint64(id), uint64(len(c.in))}
	}
	r, why := parseChunk(payload)
	switch {
	case why != nil:
		return &ProtocolError{KindChunk, id, why, uint64(len(payload)), chunkSize}
	case int(t.announced-t.fetched) >= c.opt.Chunks:
		return &ProtocolError{KindChunk, id, ErrTooMany, uint64(t.announced - t.fetched), uint64(c.opt.Chunks)}
	case t.bytes+uint64(r.Len) > t.msgs[0].end:
		return &ProtocolError{KindChunk, id, ErrSize, t.bytes + uint64(r.Len), t.msgs[0].end}
	}
	t.d.Regions[int(t.announced)%c.opt.Chunks] = r
	t.announced++
	t.bytes += uint64(r.Len)
	if !t.queued && t.feed() {
		c.queueTurn(t)
	}
	return nil
}

// feed gives the plan the next chunk, if there is one.
func (t *incoming) feed() bool {
	if t.fed == t.announced {
		return false
	}
	i := int(t.fed) % len(t.d.Regions)
	t.plan.Feed(t.d.Regions[i:i+1], 0)
	t.fed++
	return true
}
