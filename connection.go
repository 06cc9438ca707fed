package rma

import (
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/bringup"
)

// connectionEnd is a Peer as seen by its connections.
type connectionEnd Peer

// Heartbeat implements bringup.Peer.
func (c *connectionEnd) Heartbeat() (b bringup.Heartbeat) {
	if h := &c.eng.proto.heart; h.every > 0 {
		b.Every, b.Word = h.every, h.regions[c.link].Key()
		b.Word.Len = beatLength
	}
	return b
}

// Up implements bringup.Peer.
func (c *connectionEnd) Up(ep, self fabric.Endpoint, theirs *bringup.Request) {
	p, e := (*Peer)(c), c.eng
	p.ep, p.self = ep, self
	if p.down != nil { // meanwhile
		p.close()
		return
	}
	p.unaided.Store(p.own || e.bringup.Unaided(ep, p.link))
	e.proto.feel(p, theirs.Heartbeat)
	if !p.own {
		e.watches.tell(PeerEvent{Rank: p.rank, State: PeerUp})
	}
	p.one.Up(ep)
}

// Down implements bringup.Peer.
func (c *connectionEnd) Down(why error) {
	(*Peer)(c).downWith(why)
	(*Peer)(c).close()
}

// Idle implements bringup.Peer.
func (c *connectionEnd) Idle() bool {
	c.eng.proto.inbox.TakeOver()
	return c.one.Idle() && c.msg.Idle()
}

// Cause implements bringup.Peer.
func (c *connectionEnd) Cause(err error) error { return c.eng.jobCause(c.rank, err) }

// oneSidedHost is a Peer as seen by its one-sided operations.
type oneSidedHost Peer

// Connect implements initiator.Host.
func (h *oneSidedHost) Connect() { h.conn.Call() }

// Reported implements initiator.Host.
func (h *oneSidedHost) Reported(err error) { (*Peer)(h).reportDown(err) }

// Reason implements initiator.Host.
func (h *oneSidedHost) Reason(c *fabric.Completion) error {
	err := c.Err()
	if c.Status == fabric.StatusFlushed {
		(*Peer)(h).reportDown(nil)
		err = because(err, h.down)
	}
	return err
}

// Down implements initiator.Host.
func (h *oneSidedHost) Down(err error) { (*Peer)(h).downWith(err) }

// Sever implements initiator.Host.
func (h *oneSidedHost) Sever(err error) {
	(*Peer)(h).close()
	(*Peer)(h).downWith(err)
}

// Error implements initiator.Host.
func (h *oneSidedHost) Error(op string, err error) error {
	return &PeerError{Rank: h.rank, Op: op, Err: err}
}

// Hold implements initiator.Host.
func (h *oneSidedHost) Hold(on bool) {
	if ch := h.msg.Channel(); ch != nil {
		ch.Hold(on)
	}
}

// Probed implements initiator.Host.
func (h *oneSidedHost) Probed() { h.eng.proto.felt((*Peer)(h)) }

// keyAccumulate is the key under which the place of the slots for accumulates is published.
const keyAccumulate = "accumulate"

// FetchSlots implements initiator.Host.
func (h *oneSidedHost) FetchSlots(done func(val []byte, err error)) {
	n := h.conn.Now()
	n.Go(func() {
		val, err := n.Published(n.Life(), keyAccumulate)
		done(val, h.eng.jobCause(h.rank, err))
	})
}

// PublishSlots implements initiator.Host.
func (h *oneSidedHost) PublishSlots(alloc func() ([]byte, error)) {
	n := h.conn.Now()
	n.Go(func() {
		val, err := alloc()
		if err2 := n.Publish(n.Life(), keyAccumulate, val); err != nil || err2 != nil && n.Life().Err() == nil {
			h.eng.cfg.Logger.Warn("rma: no accumulates from a peer", "rank", h.rank, "memory", err, "job", err2)
		}
	})
}
