package rma

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/bringup"
	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/wireup"
	"github.com/seed33544411/rma/logp"
)

// talkTag stands in the top bits of the request IDs of message channels, which
// take three; those of one-sided operations are small numbers.
const (
	talkTag  = 1
	talkTags = 3
)

// talk is the message side of a peer. Its channel is made at the first message
// in either direction; both sides make theirs, and exchange what the other
// needs through the job.
type talk struct {
	begun  atomic.Bool
	wanted bool // the peer has begun; under Engine.mu

	// Owner's.
	ch           *message.Channel // nil until both sides are ready; always with oneself
	loop         message.Loopback // with oneself
	sends, recvs messageQueue     // for as long as ch is nil
	on           bool             // on the protocol's list
	at           int              // where on it
	calm         int              // steps without anything
	asleep       bool             // the peer was told that this side sleeps
	opened       bool             // making the channel is through
	hangUp       func()           // ends the making of it
	err          error            // why there is no channel
	ended        error            // that no more comes was told to those who wait for any peer
}

// startTalk begins to make the channel, for as long as the present connection lasts. With
// oneself there is none: messages are copied from request to request.
func (p *Peer) startTalk() {
	if p.own {
		return
	}
	n, e := p.conn.Now(), p.eng
	n.Go(func() {
		ch, err := p.openTalk(n)
		if err != nil && e.tasks.Life().Err() != nil {
			err = ErrClosed
		}
		e.prog.Do(func() { e.proto.hub.beginTalk(p, ch, err) })
	})
}

// openTalk makes this side's channel and waits for the peer to make its own,
// for as long as both are in the job. The channel, if any, is the engine's to
// close.
func (p *Peer) openTalk(n *bringup.Connection) (*message.Channel, error) {
	e := p.eng
	// It lasts until the peer opens its side, leaves or dies.
	ctx, cancel := context.WithCancel(wireup.Unlimited(n.Life()))
	defer cancel()
	ep, err := p.conn.Endpoint(ctx)
	if err == nil {
		err = p.hangUpWith(cancel)
	}
	if err != nil {
		return nil, err
	}
	ch, err := message.Open(e.links[p.link], ep, message.Options{
		IDTag: talkTag, Ring: eager.Options{Depth: e.cfg.Depth}, Policy: e.cfg.policy(),
		Pins: e.pins[p.link], Adverts: e.cfg.Adverts,
		Learn: e.cfg.learns(), Drift: p.drifted,
		Params: e.bringup.Params(p.rank), Owner: e.prog.Holder(), From: p.rank, Shared: &e.proto.hub.shared,
	})
	if err != nil {
		return nil, err
	}
	if err := n.Publish(ctx, "talk", ch.Setup()); err != nil {
		return ch, e.jobCause(p.rank, err)
	}
	// Who receives from any peer is not waiting for this one in particular.
	err = e.job.Tell(ctx, p.rank, keyTalk, n.Numbered())
	var b []byte
	if err == nil {
		b, err = n.Published(ctx, "talk")
	}
	switch {
	case err == nil:
		err = ch.Connect(b)
	case ctx.Err() != nil && e.tasks.Life().Err() == nil:
		err = p.hangUpWith(nil)
	default:
		err = e.jobCause(p.rank, err)
	}
	return ch, err
}

// drifted is told by the peer's channel that the link is not as measured. Owner's.
func (p *Peer) drifted(modes logp.ModeSet) {
	p.eng.prog.AssertOwned()
	p.eng.bringup.Drifted(p.rank, p.talk.ch, modes, p.eng.tasks)
}

// hangUpWith has cancel called when the connection is lost, once the peer has had time for
// what it has begun. It returns why there is no connection any more.
func (p *Peer) hangUpWith(cancel context.CancelFunc) (err error) {
	p.eng.prog.Do(func() { p.talk.hangUp, err = cancel, p.down })
	return err
}

// enqueueMessage hands a message, a batch or a receive on.
func (h *hub) enqueueMessage(p *Peer, o *messageOp) {
	k := &p.talk
	switch {
	case o.kind == kindRecvAny:
		h.enqueueAny(o)
		return
	case o.kind == kindRecv:
		o.in.Order = h.shared.Order()
	}
	switch {
	case k.err != nil && (k.ch == nil || o.kind != kindRecv):
		o.fail(k.err)
		return
	case p.own:
		k.hand(o)
		return
	case k.ch != nil:
		k.hand(o)
	case o.kind == kindRecv:
		k.recvs.push(o)
	default:
		k.sends.push(o)
	}
	h.listen(p)
}

// hand gives an operation to the channel.
func (k *talk) hand(o *messageOp) {
	switch {
	case o.kind == kindBatch:
		o.batch.hand(k)
	case o.kind == kindSend:
		k.send(&o.out)
	case k.ch != nil:
		k.ch.Recv(&o.in)
	default:
		k.loop.Recv(&o.in)
	}
}

func (k *talk) send(o *message.Out) {
	if k.ch != nil {
		k.ch.Send(o)
	} else {
		k.loop.Send(o)
	}
}

// beginTalk hands the channel what has waited for it. If the peer is gone meanwhile, there
// may be messages of it all the same: it may have had all that it needs to send.
func (h *hub) beginTalk(p *Peer, ch *message.Channel, err error) {
	p.talk.ch, p.talk.opened = ch, true
	if err != nil && (p.down != nil || errors.Is(err, ErrPeerGone)) && p.hears() {
		p.talk.err = err
		for p.talk.sends.head != nil {
			p.talk.sends.pop().fail(err)
		}
	} else if err != nil {
		h.endTalk(p, err)
		return
	}
	for _, q := range []*messageQueue{&p.talk.recvs, &p.talk.sends} {
		for q.head != nil {
			p.talk.hand(q.pop())
		}
	}
	h.listen(p)
}

// hears reports whether receives may still get what the peer has sent.
func (p *Peer) hears() bool {
	return !p.own && !errors.Is(p.down, ErrClosed) && (p.talk.ch != nil || p.talk.begun.Load() && !p.talk.opened)
}

// Complete implements message.Completer for messages and receives.
func (o *messageOp) Complete(tag uint32, n int, err error) {
	c := &o.peer.counts
	switch {
	case err != nil:
		o.fail(o.peer.reason(err))
		return
	case o.in.Peek:
		o.from = o.in.From
	case o.kind == kindRecv || o.kind == kindRecvAny:
		o.from = o.in.From
		c = &o.peer.eng.peers[o.from].counts
		c.Receives++
		c.RecvBytes += uint64(n)
	default:
		c.Sends++
		c.SentBytes += uint64(n)
	}
	o.tag, o.Value = tag, uint64(n)
	o.Finish()
}

// reason makes an error of the message layer one of this package. Where the channel has
// ended with the connection, that is why the connection is no more.
func (p *Peer) reason(err error) error {
	switch {
	case errors.Is(err, message.ErrTooLarge):
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	case errors.Is(err, ErrPeerGone):
		return err
	case errors.Is(err, fabric.ErrDown) && p.down == nil && p.ep != nil && p.ep.Err() != nil:
		if err = p.ep.Err(); !errors.Is(err, ErrPeerGone) { // this package has not taken notice yet
			err = because(ErrFlushed, err)
		}
		return err
	case errors.Is(err, fabric.ErrDown) && p.down != nil:
		return p.down
	case errors.Is(err, ErrFlushed) || p.talk.ch != nil && err == p.talk.ch.Err():
		why := p.down
		if why == nil && p.ep != nil {
			why = p.ep.Err()
		}
		if errors.Is(why, ErrPeerGone) {
			return why // what was flushed with it need not be told
		}
		return because(err, why)
	}
	return err
}

// stepTalk reports whether anything moved, and whether there is more to do.
func (h *hub) stepTalk(p *Peer) (did, more bool) {
	k := &p.talk
	switch {
	case k.ch == nil:
		return false, p.down == nil && (k.sends.head != nil || k.recvs.head != nil)
	case p.down != nil:
		p.close()
		k.ch.Sever(p.down)
		h.ended(p, p.down)
		return true, false
	}
	did, more, err := k.ch.Progress()
	if err != nil {
		h.endTalk(p, err)
		return true, false
	}
	return did, more
}

// complete takes an event of the peer's connection, or a completion of its
// channel.
func (h *hub) complete(p *Peer, c *fabric.Completion) {
	if c.Op == fabric.OpDown {
		h.inbox.TakeOver() // receives handed in before the news get what came before it
	}
	if c.Op == fabric.OpDown || c.Status != fabric.StatusOK {
		p.reportDown(c.Err())
	}
	if ch := p.talk.ch; ch != nil {
		if c.Op == fabric.OpNotify && p.down == nil && p.talk.err == nil {
			h.listen(p) // the peer wants an answer, be there messages for this side or not
		} else {
			h.rouse(p)
		}
		ch.OnCompletion(c)
		if err := ch.Err(); err != nil && c.Op != fabric.OpDown {
			h.endTalk(p, err)
		}
	}
}

// endTalk fails the messages of a channel that cannot go on. One-sided
// operations are not affected: what the link or the peer may still touch ends
// with the connection.
func (h *hub) endTalk(p *Peer, err error) {
	err = p.reason(err)
	if p.talk.err == nil {
		p.talk.err = err
	}
	for _, q := range []*messageQueue{&p.talk.sends, &p.talk.recvs} {
		for q.head != nil {
			q.pop().fail(err)
		}
	}
	h.ended(p, err)
}

// hear begins to make the channels that messages are wanted from: the one of rank
// only-1, or, if that is 0, those of all peers that have begun to make theirs, or
// will: peers that never send cost nothing.
func (e *Engine) hear(only int) {
	if only == 0 && e.proto.hub.hears.Swap(true) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.peers {
		if (only == 0 && p.talk.wanted || only == p.rank+1) && p.talk.begun.CompareAndSwap(false, true) {
			p.startTalk()
		}
	}
}

// wanted notes that the peer has begun to make its side of the channel. Under
// Engine.mu.
func (p *Peer) wanted() {
	p.talk.wanted = true
	if p.eng.proto.hub.hears.Load() && p.talk.begun.CompareAndSwap(false, true) {
		p.startTalk()
	}
}

// rest tells peers where a plain write does not wake this side, and it waits
// for them, to notify. It returns how long the rest may last, 0 for ever.
func (h *hub) rest(on bool) time.Duration {
	h.talks.all = true
	waits := false
	for _, p := range h.talks.list {
		if on && p.talk.ch != nil {
			p.talk.ch.GoAround() // the last step before the sleep sees to the rest
		}
		if p.talk.ch != nil && p.down == nil && !p.eng.links[p.link].Caps().WakesOnWrite {
			p.sleep(on)
			waits = true
		}
	}
	if !on || !waits {
		return 0
	}
	return h.nap.Next()
}

// sleep tells the peer whether this side sleeps, where it does not know.
func (p *Peer) sleep(on bool) {
	if p.talk.asleep != on && p.talk.ch != nil {
		p.talk.asleep = on
		_, _ = p.talk.ch.Sleep(on) // what cannot be posted now goes out with a later flush; naps are short meanwhile
	}
}
