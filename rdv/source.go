package rdv

import (
	"fmt"

	"github.com/seed33544411/rma/flowctl"
	"github.com/seed33544411/rma/scatter"
)

// States of an outgoing transfer.
const (
	outFree      uint8 = iota
	outAnnounced       // RTS sent: FIN ends it
)

// outgoing is a transfer whose sources are ours. The peer may read them until
// its FIN, or until the endpoint is down.
type outgoing struct {
	token uint64
	gen   uint16
	n     uint16 // messages
	state uint8
	by    Means
}

// Send announces a batch that lies in registered memory; the peer fetches it.
// Handler.Sent with token ends the transfer; until then the sources are not to
// be changed or withdrawn. d is free again on return. tag travels with it,
// uninterpreted. A non-nil error concerns this batch only (scatter's errors,
// ErrTooLarge) or is the channel's end. Short path.
func (c *Channel) Send(d *scatter.Descriptor, tag uint32, token uint64) (ID, Result, error) {
	if err := c.ready(); err != nil {
		return 0, Busy, err
	}
	if len(d.Messages) > int(c.peer.Messages) || len(d.Regions) > int(c.peer.Regions) {
		return 0, Busy, fmt.Errorf("send batch of %d messages in %d regions: %w: %d messages, %d regions",
			len(d.Messages), len(d.Regions), ErrTooLarge, c.peer.Messages, c.peer.Regions)
	}
	var err error
	if c.payload, err = d.Append(c.payload[:0]); err != nil {
		return 0, Busy, fmt.Errorf("send batch: %w", err)
	}
	if most := c.ring.MaxPayload(flowctl.Control, true); len(c.payload) > most {
		return 0, Busy, fmt.Errorf("send batch: descriptor of %d bytes: %w: the peer's ring takes %d", len(c.payload), ErrTooLarge, most)
	}
	slot, ok := c.takeOutgoing()
	if !ok {
		return 0, Busy, c.err
	}
	o := &c.out[slot]
	id := makeID(slot, o.gen+1)
	if !c.send(KindRTS, id, tag, c.payload) {
		c.stats.Busy++
		return 0, Busy, c.err
	}
	c.outFree = c.outFree[:len(c.outFree)-1]
	o.gen++
	o.state, o.token, o.by, o.n = outAnnounced, token, byReference, uint16(len(d.Messages))
	return id, Accepted, nil
}

// Full reports that as many transfers are outstanding as may be: Send is refused
// until one has ended. Short path.
func (c *Channel) Full() bool { return len(c.outFree) == 0 }

// ready reports why nothing can be sent.
func (c *Channel) ready() error {
	switch {
	case c.err != nil:
		return c.err
	case !c.live:
		return ErrNotConnected
	}
	return nil
}

// takeOutgoing names the slot of the next transfer, if there is one and
// nothing older waits for the ring.
func (c *Channel) takeOutgoing() (slot int, ok bool) {
	c.flushControl()
	if c.control.n > 0 || len(c.outFree) == 0 {
		c.stats.Busy++
		return 0, false
	}
	return int(c.outFree[len(c.outFree)-1]), true
}

// findOutgoing returns the transfer that id names, nil if it is over.
func (c *Channel) findOutgoing(id ID) *outgoing {
	if id.slot() >= len(c.out) {
		return nil
	}
	if o := &c.out[id.slot()]; o.state != outFree && o.gen == id.gen() {
		return o
	}
	return nil
}

// onFIN ends an outgoing transfer.
func (c *Channel) onFIN(id ID, status uint32, payload []byte) error {
	o := c.findOutgoing(id)
	c.waited = status == statusWaited
	switch {
	case o == nil:
		return &ProtocolError{KindFIN, id, ErrUnknownID, uint64(id), uint64(len(c.out))}
	case status >= numStatus:
		return &ProtocolError{KindFIN, id, ErrMessage, uint64(status), uint64(numStatus)}
	case status != statusRefused && o.by != byReference && !c.pipes[id.slot()].announced():
		p := &c.pipes[id.slot()]
		return &ProtocolError{KindFIN, id, ErrSize, uint64(p.off), uint64(len(p.src))}
	case status != statusRefused && len(payload) != 0 || status == statusRefused && checkRefused(payload, int(o.n)) != nil:
		return &ProtocolError{KindFIN, id, ErrMessage, uint64(len(payload)), uint64(o.n)}
	}
	if status == statusRefused {
		c.refused = payload
		c.endOutgoing(id.slot(), ErrRefused)
		c.refused = nil
		return nil
	}
	c.stats.Sent++
	c.endOutgoing(id.slot(), nil)
	return nil
}

// Waited says, within Handler.Sent, whether the transfer waited at the peer for
// somebody to want it: how long it took is not the link's doing then.
func (c *Channel) Waited() bool { return c.waited }

// Refused says, within Handler.Sent with ErrRefused, whether message i of the transfer
// was refused; the others were fetched.
func (c *Channel) Refused(i int) bool { return c.refused[i/8]>>(i%8)&1 != 0 }

// endOutgoing frees the slot, then tells: the handler may use it at once.
func (c *Channel) endOutgoing(slot int, err error) {
	o := &c.out[slot]
	if o.by != byReference {
		c.endPipe(&c.pipes[slot])
	}
	o.state = outFree
	c.outFree = append(c.outFree, uint16(slot))
	c.h.Sent(o.token, err)
}
