package rma

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/wireup"
)

// talkTag stands in the top bits of the request IDs of message channels; those
// of one-sided operations are small numbers.
const talkTag = 1

// talk is the message side of a peer. Its channel is made at the first message
// in either direction; both sides make theirs, and exchange what the other
// needs through the job.
type talk struct {
	begun atomic.Bool

	// Owner's.
	ch           *eager.Channel // nil until both sides are ready; always with oneself
	sends, recvs opQueue
	on           bool  // on the protocol's list
	asleep       bool  // the peer was told that this side sleeps
	err          error // why there is no channel
}

// startTalk begins to make the channel.
func (p *Peer) startTalk() {
	e := p.eng
	if p.rank == e.Rank() {
		return // messages to oneself are copied from request to request
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed.Load() {
		return
	}
	e.tasks.Go(func() {
		ch, err := p.openTalk()
		if err != nil && e.life.Err() != nil {
			err = ErrClosed
		}
		e.prog.Do(func() {
			p.talk.ch = ch
			if err != nil {
				e.proto.endTalk(p, err)
			}
		})
	})
}

// openTalk makes this side's channel and waits for the peer to make its own,
// for as long as both are in the job. The channel, if any, is the engine's to
// close.
func (p *Peer) openTalk() (*eager.Channel, error) {
	e := p.eng
	// The rendezvous bounds waits without deadline; this one lasts until the
	// peer talks back, leaves or dies.
	ctx, cancel := context.WithTimeout(e.life, 10*365*24*time.Hour)
	defer cancel()
	ch, err := eager.Open(e.links[p.link], p.ep, eager.Options{IDTag: talkTag, Depth: e.cfg.Depth})
	if err != nil {
		return nil, err
	}
	s := ch.Setup()
	if err := e.job.Put(ctx, "talk/"+strconv.Itoa(p.rank), s.Append(nil)); err != nil {
		return ch, err
	}
	b, err := e.job.Get(ctx, p.rank, "talk/"+strconv.Itoa(e.Rank()))
	if errors.Is(err, wireup.ErrPeerGone) {
		err = fmt.Errorf("%w: %w", ErrPeerGone, err)
	}
	if err != nil {
		return ch, err
	}
	theirs, rest, err := eager.ParseSetup(b)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%w: %d bytes too many", eager.ErrSetup, len(rest))
	}
	if err == nil {
		err = ch.Connect(theirs)
	}
	return ch, err
}

func (t *proto) enqueueMessage(p *Peer, o *op) {
	switch {
	case p.talk.err != nil:
		t.fail(o, p.talk.err)
		return
	case o.kind == kindSend:
		p.talk.sends.push(o)
	default:
		p.talk.recvs.push(o)
	}
	if !p.talk.on {
		p.talk.on = true
		t.talks = append(t.talks, p)
	}
}

// stepTalks sends and receives what can be. Short path.
func (t *proto) stepTalks() bool {
	did := false
	for i := 0; i < len(t.talks); {
		p := t.talks[i]
		busy, more := t.stepTalk(p)
		did = did || busy
		if more {
			i++
			continue
		}
		p.talk.on = false
		p.sleep(false)
		last := len(t.talks) - 1
		t.talks[i] = t.talks[last]
		t.talks[last] = nil
		t.talks = t.talks[:last]
	}
	if did {
		t.nap.Reset()
	}
	return did
}

// stepTalk reports whether anything moved, and whether there is more to do.
func (t *proto) stepTalk(p *Peer) (did, more bool) {
	k := &p.talk
	if p.self != nil {
		for k.sends.head != nil && k.recvs.head != nil {
			t.selfMessage(p)
			did = true
		}
		return did, k.sends.head != nil || k.recvs.head != nil
	}
	ch := k.ch
	if ch == nil || p.down != nil {
		return false, k.sends.head != nil || k.recvs.head != nil
	}
	for k.recvs.head != nil {
		o := k.recvs.head
		h, ok, err := ch.Recv(o.buf)
		if !ok && err == nil {
			break
		}
		did = true
		switch k.recvs.pop(); {
		case err == nil:
			o.value = uint64(h.Len)
			t.stats.Receives++
			t.stats.RecvBytes += o.value
			o.Finish()
		default:
			t.fail(o, err)
		}
	}
	for k.sends.head != nil && ch.Err() == nil {
		o := k.sends.head
		n := len(o.buf)
		res, err := ch.Send(eager.Envelope{}, o.buf)
		if err == nil && res != eager.Accepted {
			break
		}
		did = true
		switch k.sends.pop(); {
		case err == nil:
			t.stats.Sends++
			t.stats.SentBytes += uint64(n)
			o.Finish()
		case errors.Is(err, eager.ErrTooLarge):
			t.fail(o, fmt.Errorf("%w: %w", ErrTooLarge, err))
		default:
			t.fail(o, err)
		}
	}
	done, err := ch.Progress(false)
	if err != nil {
		t.endTalk(p, err)
		return true, false
	}
	return did, !done || k.sends.head != nil || k.recvs.head != nil
}

// selfMessage copies a message of this rank to itself.
func (t *proto) selfMessage(p *Peer) {
	from, to := p.talk.sends.head, p.talk.recvs.pop()
	if len(to.buf) < len(from.buf) {
		t.fail(to, fmt.Errorf("receive %d bytes into %d: %w", len(from.buf), len(to.buf), ErrShortBuffer))
		return
	}
	n := copy(to.buf, from.buf)
	p.talk.sends.pop()
	t.stats.Sends++
	t.stats.Receives++
	t.stats.SentBytes += uint64(n)
	t.stats.RecvBytes += uint64(n)
	to.value = uint64(n)
	from.Finish()
	to.Finish()
}

// completeTalk takes an event of the peer's connection, or a completion of its
// channel.
func (t *proto) completeTalk(p *Peer, c *fabric.Completion) {
	if ch := p.talk.ch; ch != nil {
		ch.OnCompletion(c)
		if err := ch.Err(); err != nil && c.Op != fabric.OpDown {
			t.endTalk(p, err)
		}
	}
	if c.Op == fabric.OpDown || c.Status != fabric.StatusOK {
		p.reportDown(t, c.Err())
	}
}

// endTalk fails the messages of a channel that cannot go on. One-sided
// operations are not affected.
func (t *proto) endTalk(p *Peer, err error) {
	if p.talk.err == nil {
		p.talk.err = err
	}
	for _, q := range []*opQueue{&p.talk.sends, &p.talk.recvs} {
		for q.head != nil {
			t.fail(q.pop(), err)
		}
	}
}

// Rest implements progress.Protocol: where a plain write does not wake this
// side, peers that it waits for are asked to notify.
func (t *proto) Rest(on bool) time.Duration {
	waits := false
	for _, p := range t.talks {
		if p.talk.ch != nil && p.down == nil && !p.eng.links[p.link].Caps().WakesOnWrite {
			p.sleep(on)
			waits = true
		}
	}
	if !on || !waits {
		return 0
	}
	return t.nap.Next()
}

// sleep tells the peer whether this side sleeps, where it does not know.
func (p *Peer) sleep(on bool) {
	if p.talk.asleep != on && p.talk.ch != nil {
		p.talk.asleep = on
		_, _ = p.talk.ch.Sleep(on) // what cannot be posted now goes out with a later flush; naps are short meanwhile
	}
}
