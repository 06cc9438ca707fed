package rma

import (
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/bringup"
	"github.com/seed33544411/rma/internal/initiator"
	"github.com/seed33544411/rma/internal/message/hub"
	"github.com/seed33544411/rma/internal/pending"
)

// proto dispatches the traffic of an engine's links: one-sided operations, messages, and
// reads of heartbeats. Except for the inbox, and the redeeming of receipts, it belongs to
// the owner of the progress engine.
type proto struct {
	inbox    pending.Inbox
	receipts pending.Receipts
	peers    []*Peer // by rank
	one      initiator.Engine
	hub      hub.Hub
	heart    heartbeat
	steps    uint
}

// channelTag is set in the top bits of the request IDs of message channels, which take
// three bits; the IDs of one-sided operations are small numbers.
const (
	channelTag  = 1
	channelTags = 3
)

// init makes t ready. contention is initiator.Options.Contention.
func (t *proto) init(contention time.Duration) {
	t.hub.Init(hub.Options{Inbox: &t.inbox, Receipts: &t.receipts, Protocol: t, Error: peerError, Closed: ErrClosed})
	t.one.Init(initiator.Options{Inbox: &t.inbox, Receipts: &t.receipts, Protocol: t, Contention: contention})
}

// Pending implements progress.Protocol.
func (t *proto) Pending() bool { return t.inbox.Pending() }

// Step implements progress.Protocol.
func (t *proto) Step() bool {
	if t.steps++; t.steps%beatSteps == 0 {
		t.heart.beat()
	}
	took := t.inbox.TakeOver()
	did := t.one.Step()
	return t.hub.Step() || did || took
}

// Refuse implements progress.Protocol. The connections are down for good: what is started fails.
func (t *proto) Refuse() { t.inbox.TakeOver() }

// Watches implements progress.Protocol. Messages wake this rank in any case.
func (t *proto) Watches() bool { return t.one.Watches() }

// Rest implements progress.Protocol.
func (t *proto) Rest(on bool) time.Duration {
	d := t.hub.Rest(on)
	if on {
		if n := t.one.Rest(); n != 0 && (d == 0 || n < d) {
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
		if c.Op < fabric.OpNotify && c.ID>>48-channelTag >= channelTags && t.one.Complete(c) {
			continue
		}
		switch p := t.of(c.EP); {
		case p == nil:
		case c.Op == fabric.OpPath:
			pathEvent(p)
		case c.Op >= fabric.OpNotify && link != p.link:
			railEvent(p, link, c)
		case initiator.IsNotification(c):
			p.one.Notified(c)
		case c.Op >= fabric.OpNotify || c.ID>>48-channelTag < channelTags:
			p.msg.Event(c)
		default:
			p.one.CompleteControl(c)
		}
	}
}

// of returns the peer that the endpoint of this ID connects with; nil if that connection is
// over, or for the passive end of the connection with this rank itself.
// Hot path.
func (t *proto) of(ep uint32) *Peer {
	if r := bringup.Rank(ep); r < len(t.peers) && t.peers[r].id == ep {
		return t.peers[r]
	}
	return nil
}
