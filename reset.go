package rma

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed33544411/rma/internal/bringup"
)

// Reset replaces a lost connection with the peer by a new one: after an operation that the
// target refused (a stale key), a temporary failure of the network, or a hang of the peer
// from which it has recovered, or when one of the two had no memory or descriptors left. A
// peer that verbs no longer reaches is connected over tcp, unless Config.Fabric forbids it
// (docs/rails.md). If
// the connection works, or none has been made yet, Reset does nothing.
//
// Both sides take part. The peer's application makes no call, and is notified by
// Engine.Watch. All operations between the two ranks that were in flight fail first, on
// both sides, and so do operations posted before the old connection is released: with the
// reason of the loss, or with ErrReset at a peer that has not seen it. Regions,
// windows and their keys do not change, and complete operations stay complete. Messages
// start afresh: messages that arrived over the old connection and that no receive has taken
// are dropped. After Reset has returned nil, no operation of the old connection has any
// effect on memory, here or at the peer.
//
// Reset returns when the new connection works, or with a *PeerError, which wraps
// ErrPeerGone if the peer died, and ErrPeerHung if it does not answer for
// Config.HangTimeout. If ctx ends first, the reset continues, and a further call waits for
// it.
func (p *Peer) Reset(ctx context.Context) error {
	e := p.eng
	if e.closed.Load() {
		return ErrClosed
	}
	if why := e.job.GoneReason(p.rank); why != "" {
		return p.notReset(fmt.Errorf("%w (%s)", ErrPeerGone, why))
	}
	var lost *bringup.Connection
	e.prog.Do(func() {
		if p.down != nil || p.refused != nil {
			lost = p.conn.Now()
		}
	})
	err := p.conn.Reset(ctx, lost)
	if err == nil || errors.Is(err, ErrClosed) {
		return err
	}
	return p.notReset(err)
}

func (p *Peer) notReset(err error) error {
	return &PeerError{Rank: p.rank, Op: "reset", Err: err}
}

// Forget implements bringup.Peer. Memory that the peer may still be writing to is left for
// Engine.Close.
func (c *connectionEnd) Forget() {
	p := (*Peer)(c)
	p.release()
	p.ep, p.self, p.pulse = nil, nil, pulse{}
	p.down, p.refused = nil, nil
	for i := range p.rails {
		p.rails[i].ep = nil
	}
	p.rails[0].outages, p.rails[0].out = 0, false
}

// Renew implements bringup.Peer.
func (c *connectionEnd) Renew(n *bringup.Connection) {
	c.id = n.ID()
	c.msg.Reopen()
}

// release frees the memory of a connection that is over. Owner's.
func (p *Peer) release() {
	p.eng.prog.AssertOwned()
	var kept []func() error
	if ch := p.msg.Renew(); ch != nil {
		kept = append(kept, ch.Close)
	}
	for _, r := range p.one.Renew() {
		kept = append(kept, r.Close)
	}
	for _, end := range kept {
		if end() != nil {
			p.eng.remains.add(end)
		}
	}
}
