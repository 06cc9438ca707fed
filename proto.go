package rma

import (
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/bringup"
	"github.com/seed33544411/rma/internal/pending"
)

// proto is what the links of an engine carry: one-sided operations, messages, and reads of
// heartbeats. All but the inbox, and the redeeming of receipts, belongs to the owner of the
// progress engine.
type proto struct {
	inbox    pending.Inbox
	receipts pending.Receipts
	peers    []*Peer // by rank
	one      initiator
	hub      hub
	heart    heartbeat
	steps    uint
}

func newProto() *proto {
	t := new(proto)
	t.one.inbox, t.hub.inbox = &t.inbox, &t.inbox
	return t
}

// Pending implements progress.Protocol.
func (t *proto) Pending() bool { return t.inbox.Pending() }

// Step implements progress.Protocol.
func (t *proto) Step() bool {
	if t.steps++; t.steps%beatSteps == 0 {
		t.heart.beat()
	}
	took := t.inbox.TakeOver()
	did := t.one.step()
	return t.hub.step() || did || took
}

// Rest implements progress.Protocol.
func (t *proto) Rest(on bool) time.Duration {
	d := t.hub.rest(on)
	if on {
		if n := t.one.rest(); n != 0 && (d == 0 || n < d) {
			d = n
		}
	}
	return t.heart.nap(d)
}

// Complete implements progress.Protocol.
// Hot path.
func (t *proto) Complete(link int, cs []fabric.Completion) {
	for i := range cs {
		c := &cs[i]
		switch {
		case c.Op < fabric.OpNotify && c.ID>>48-talkTag >= talkTags:
			if !t.one.complete(link, c) {
				t.completeAck(c)
			}
		case c.Op == fabric.OpNotify && c.Imm>>16 == notifyMagic:
			if p := t.of(c.EP); p != nil {
				t.one.notified(p, c)
			}
		default:
			if p := t.of(c.EP); p != nil {
				t.hub.complete(p, c)
			}
		}
	}
}

// of is the peer that the endpoint of this ID connects with; nil if it is over, or the
// passive end of the connection with oneself.
// Hot path.
func (t *proto) of(ep uint32) *Peer {
	if r := bringup.Rank(ep); r < len(t.peers) && t.peers[r].id == ep {
		return t.peers[r]
	}
	return nil
}

// completeAck takes the completion of an acknowledgement or of a read of a heartbeat, or
// one that nobody here waits for.
func (t *proto) completeAck(c *fabric.Completion) {
	p := t.of(c.EP)
	if p == nil || c.ID != ackID && c.ID != beatID {
		return
	}
	p.inflight--
	p.full = false
	switch {
	case c.Status != fabric.StatusOK:
		p.reportDown(c.Err())
	case c.ID == beatID:
		t.felt(p)
	}
}
