package rma

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/bringup"
	"github.com/seed33544411/rma/internal/initiator"
	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/wireup"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/mr"
	"github.com/seed33544411/rma/rdv"
	"github.com/seed33544411/rma/scatter"
)

// messageHost is a Peer as seen by its messages.
type messageHost Peer

// Open implements hub.Host. The channel lives as long as the present connection, and is
// opened once for each connection.
func (h *messageHost) Open() {
	n := h.conn.Now()
	if h.opening.Swap(n) == n {
		return
	}
	n.Go(func() {
		p := (*Peer)(h)
		params := p.eng.bringup.Path(p.rank).Params
		ch, err := p.openChannel(n, params)
		h.eng.prog.Do(func() {
			if ch != nil {
				if p.eng.bringup.Path(p.rank).Params != params { // Replan has not seen it
					h.plan(ch)
				}
			}
			h.msg.Opened(ch, err)
		})
	})
}

// plan sets the parameters of later messages. Owner's.
func (h *messageHost) plan(ch *message.Channel) {
	h.eng.prog.AssertOwned()
	if err := ch.SetParams(h.eng.bringup.Path(h.rank).Params); err != nil {
		h.eng.cfg.Logger.Warn("rma: parameters of a path not used", "rank", h.rank, "err", err)
	}
}

// openChannel creates this side's channel and waits until the peer has created its own, as
// long as both are in the job. A rank that cannot create it notifies the other, which ends
// the connection. The conversation closes the channel, if there is one.
func (p *Peer) openChannel(n *bringup.Connection, params *logp.Params) (ch *message.Channel, err error) {
	e := p.eng
	// The wait lasts until the peer opens its side, leaves or dies.
	ctx, cancel := context.WithCancel(wireup.Unlimited(n.Life()))
	defer cancel()
	defer func() { err = calledJob(ctx, p, err) }()
	ep, err := p.conn.Endpoint(ctx)
	if err == nil {
		err = p.hangUpWith(cancel)
	}
	if err != nil {
		return nil, err
	}
	ch, err = message.Open(e.links[p.link], ep, message.Options{
		IDTag: channelTag, Ring: eager.Options{Depth: e.cfg.Depth, Sparse: e.Size() > readyRings}, Rings: e.rings, SmallRings: e.cfg.smallRings(e.Size()), RingMost: e.cfg.RingLimit, Policy: e.cfg.policy(e.links[p.link].Name()),
		Pins: e.pins[p.link], Adverts: e.cfg.Adverts,
		Learn: e.cfg.learns(), Drift: p.drifted,
		Params: params, Owner: e.prog.Holder(), From: p.rank, Shared: e.proto.hub.Shared(), Posted: e.proto.inbox.TakeOver, Rails: railsOf(p),
	})
	if err != nil {
		return nil, (*messageHost)(p).noChannel(n, err)
	}
	if err := n.Publish(ctx, keyChannel, ch.Setup()); err != nil {
		return ch, err
	}
	// A rank that receives from any peer does not wait for this one in particular.
	err = e.job.Send(ctx, p.rank, keyChannel, n.Numbered())
	var b []byte
	if err == nil {
		b, err = n.Published(ctx, keyChannel)
	}
	if err != nil {
		return ch, err
	}
	if err = ch.Connect(b); err != nil {
		err = (*messageHost)(p).noChannel(n, err)
	}
	return ch, err
}

// calledJob returns the cause of err, of calls of the job that end with ctx, which ends with the
// connection: if the engine is being closed, or ctx has ended, that is the cause.
func calledJob(ctx context.Context, p *Peer, err error) error {
	switch {
	case err == nil:
		return nil
	case p.eng.tasks.Life().Err() != nil:
		return ErrClosed
	case ctx.Err() != nil:
		p.eng.prog.Do(func() { err = cmp.Or(p.down, err) })
		return err
	}
	return p.eng.jobCause(p.rank, err)
}

// noChannel notifies the peer that this rank has failed to create its side of the channel,
// and why. The peer, which may be using its own side, ends the connection.
func (h *messageHost) noChannel(n *bringup.Connection, err error) error {
	err = fmt.Errorf("%w: %w", ErrNoConnection, fabric.Shortage(err))
	h.eng.prog.Do(func() { h.refused = err })
	n.Refuse(err)
	return err
}

// hangUpWith calls cancel when the connection is lost, after the peer has had time to
// finish what it has begun. It returns why the connection has ended.
func (p *Peer) hangUpWith(cancel context.CancelFunc) (err error) {
	p.eng.prog.Do(func() { p.hangUp, err = cancel, p.down })
	return err
}

// drifted handles the report of the peer's channel that the link differs from its measured
// parameters. Owner's.
func (p *Peer) drifted(modes logp.ModeSet) {
	p.eng.prog.AssertOwned()
	p.eng.bringup.Drifted(p.rank, p.msg.Channel(), modes, p.eng.tasks)
}

// Reported implements hub.Host.
func (h *messageHost) Reported(err error) { (*Peer)(h).reportDown(err) }

// Close implements hub.Host.
func (h *messageHost) Close() { (*Peer)(h).close() }

// Blame implements hub.Host.
func (h *messageHost) Blame(err error) { h.one.Blame(err) }

// Reason implements hub.Host: it turns an error of the message layer into one of this
// package. If the channel has ended with the connection, the error is the reason of the
// connection's end.
func (h *messageHost) Reason(err error, ended bool) error {
	switch {
	case errors.Is(err, message.ErrPeer):
		return fmt.Errorf("%w: %w", ErrPeerMisbehaves, err)
	case errors.Is(err, message.ErrTooLarge):
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	case errors.Is(err, ErrPeerGone) && !errors.Is(h.down, ErrPeerGone) && whyRefused((*Peer)(h)) != nil:
		return h.refused // the peer has closed its end on this side's request
	case errors.Is(err, ErrPeerGone):
		return err
	case errors.Is(err, fabric.ErrDown) && h.down == nil && h.ep != nil && h.ep.Err() != nil:
		if err = h.ep.Err(); !errors.Is(err, ErrPeerGone) { // this package has not recorded the end yet
			err = because(ErrFlushed, err)
		}
		return err
	case (errors.Is(err, fabric.ErrDown) || errors.Is(err, ErrRemoteAccess)) && h.down != nil:
		return because(err, h.down)
	case errors.Is(err, ErrFlushed) || ended:
		why := h.down
		if why == nil && h.ep != nil {
			why = h.ep.Err()
		}
		if errors.Is(why, ErrPeerGone) {
			return why // the flush is only a consequence
		}
		return because(err, why)
	}
	return err
}

// messageRails are the connections of a Peer as seen by its messages.
type messageRails Peer

// railsOf returns the connections for the messages with the peer, nil if there is one.
func railsOf(p *Peer) message.Rails {
	if !p.railed {
		return nil
	}
	return (*messageRails)(p)
}

// Pins implements message.Rails.
func (m *messageRails) Pins(i int) *message.Pins {
	if r := &m.rails[i]; r.has {
		return m.eng.pins[r.link]
	}
	return nil
}

// Read implements message.Rails.
func (m *messageRails) Read(dst []byte, src scatter.Region, keys rdv.RailKeys, done func(error)) {
	p := (*Peer)(m)
	o := initiator.New(&p.one, initiator.Get)
	o.Remote(src.Addr, src.RKey)
	o.Memory(dst)
	o.Apart() // the message is counted
	on := [mr.MaxRails]initiator.PartKeys{{RKey: src.RKey, Link: p.link, Has: true}}
	for i := range p.rails {
		if r := &p.rails[i]; r.has && keys.Has>>i&1 != 0 {
			on[i] = initiator.PartKeys{RKey: keys.RKeys[i], Link: r.link, Has: true}
		}
	}
	o.Divide(&on)
	p.one.Post(o)
	o.Then(done)
}
