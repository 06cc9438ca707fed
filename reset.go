package rma

import (
	"context"
	"fmt"

	"github.com/seed33544411/rma/internal/bringup"
)

// Reset makes the connection with the peer anew where it was lost: after an operation that
// the target refused (a stale key), a network that went away for a while, or a peer that
// hung and goes on. Where there is a connection that works, or none yet, it does nothing.
//
// Both sides take part; the peer's application need not call anything, and hears of it from
// Engine.Watch. Everything that was under way between the two has failed first, on both
// sides, and so does what is posted before the old connection is out of the way. Regions, windows, and
// their keys stay as they are, and what was complete stays done. Messages begin afresh: those that the
// old connection had brought and that no receive has taken are dropped. No operation of the old connection
// has any effect on memory after Reset has returned nil, here or at the peer.
//
// Reset returns when the new connection is there, or with a *PeerError: of a peer that
// died it wraps ErrPeerGone, of one that does not answer for Config.HangTimeout
// ErrPeerHung. If ctx ends first, the making goes on, and a further call waits for it.
func (p *Peer) Reset(ctx context.Context) error {
	e := p.eng
	if e.closed.Load() {
		return ErrClosed
	}
	if why := e.job.GoneReason(p.rank); why != "" {
		return p.notReset(fmt.Errorf("%w (%s)", ErrPeerGone, why))
	}
	var down error
	e.prog.Do(func() { down = p.down })
	switch err := p.conn.Reset(ctx, down != nil); err {
	case nil, ErrClosed:
		return err
	default:
		return p.notReset(err)
	}
}

func (p *Peer) notReset(err error) error {
	return &PeerError{Rank: p.rank, Op: "reset", Err: err}
}

// Forget implements bringup.Peer. What the peer is still in the middle of writing to is
// left for Engine.Close.
func (c *connectionEnd) Forget() {
	p := (*Peer)(c)
	p.release()
	p.ep, p.self, p.pulse = nil, nil, pulse{}
	p.down = nil
}

// Renew implements bringup.Peer.
func (c *connectionEnd) Renew(n *bringup.Connection) {
	c.id = n.ID()
	c.msg.Reopen()
}

// release gives back the memory of a connection that is over. Owner's.
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
			p.eng.remains = append(p.eng.remains, end)
		}
	}
}
