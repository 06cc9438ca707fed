package rma

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/message"
)

// errRemade is why operations on a connection end that is made anew.
var errRemade = errors.New("the connection is being made anew")

// Reset makes the connection with the peer anew where it was lost: after an operation that
// the target refused (a stale key), a network that went away for a while, or a peer that
// hung and goes on. Where there is a connection that works, or none yet, it does nothing.
//
// Both sides take part; the peer's application need not call anything, and hears of it from
// Engine.Watch. Everything that was under way between the two has failed first, on both
// sides, and so does what is handed in before the old connection is out of the way. Regions, windows, and
// their keys stay as they are, and what was complete stays done. Messages begin afresh: those that the
// old connection had brought and that no receive has taken are dropped. No operation of the old connection
// has any effect on memory after Reset has returned nil, here or at the peer.
//
// Reset returns when the new connection is there, or with a *PeerError: of a peer that
// died it wraps ErrPeerGone, of one that does not answer for Config.HangTimeout
// ErrPeerHung. If ctx ends first, the making goes on, and a further call waits for it.
func (p *Peer) Reset(ctx context.Context) error {
	e := p.eng
	e.mu.Lock()
	if e.closed.Load() {
		e.mu.Unlock()
		return ErrClosed
	}
	if why := e.job.GoneReason(p.rank); why != "" {
		e.mu.Unlock()
		return p.notReset(fmt.Errorf("%w (%s)", ErrPeerGone, why))
	}
	e.mu.Unlock()
	var down error
	e.prog.Do(func() { down = p.down })
	e.mu.Lock()
	if down != nil {
		p.remakeLocked()
	}
	remake := p.remake
	e.mu.Unlock()
	if remake != nil {
		select {
		case <-remake:
		case <-ctx.Done():
			return p.notReset(ctx.Err())
		case <-e.life.Done():
			return ErrClosed
		}
	}
	d := p.dial.Load()
	if !d.begun.Load() {
		return nil
	}
	select {
	case <-d.done:
		if d.err != nil {
			return p.notReset(d.err)
		}
		return nil
	case <-ctx.Done():
		return p.notReset(ctx.Err())
	case <-e.life.Done():
		return ErrClosed
	}
}

func (p *Peer) notReset(err error) error {
	return &PeerError{Rank: p.rank, Op: "reset", Err: err}
}

// remakeLocked begins to make the connection anew, if nobody has. Under Engine.mu.
func (p *Peer) remakeLocked() {
	e := p.eng
	if p.remake != nil || e.closed.Load() {
		return
	}
	p.remake = make(chan struct{})
	e.begin(func() {
		if p.bury(p.dial.Load()) {
			e.prog.Do(p.renew)
		}
	})
}

// bury ends the connection and all that is under way on it. It returns false if the
// engine is closed before.
func (p *Peer) bury(d *dial) bool {
	e := p.eng
	e.mu.Lock()
	d.over = true
	if d.hangUp != nil {
		d.hangUp(fmt.Errorf("%w: %w", ErrNoConnection, errRemade))
	}
	e.mu.Unlock()
	if d.begun.Load() {
		<-d.done // soon: it was told to give up
	}
	e.prog.Do(func() {
		p.downWith(errRemade)
		p.close()
	})
	d.end()
	for tick := time.NewTicker(time.Millisecond); ; {
		over := false
		e.prog.Do(func() { over = e.proto.idle(p) })
		if over {
			tick.Stop()
			break
		}
		e.prog.Progress()
		select {
		case <-tick.C:
		case <-e.life.Done():
			tick.Stop()
			return false
		}
	}
	d.tasks.Wait()
	for _, what := range published {
		_ = e.job.Take(d.name(what, p.rank)) // a server that is gone holds nothing
	}
	return true
}

// idle reports whether nothing of p, whose connection is closed, is left with the link or
// on a list.
func (t *proto) idle(p *Peer) bool {
	t.inbox.TakeOver()
	return p.inflight == 0 && p.open == 0 && p.posts.head == nil && p.flushes.head == nil && !p.active && !p.talk.on
}

// renew puts a new connection in the place of one that is over. Owner's.
func (p *Peer) renew() {
	e := p.eng
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed.Load() {
		return
	}
	p.release()
	p.ep, p.self, p.near = nil, nil, nil
	p.full, p.fenced, p.loose, p.reduces, p.loops, p.acks = false, false, 0, nil, loops{}, nil
	p.asks, p.serves, p.pulse = requests{}, serving{}, pulse{}
	k := &p.talk
	k.wanted, k.ch, k.calm, k.asleep, k.opened, k.err, k.ended = false, nil, 0, false, false, nil, nil
	k.loop = message.Loopback{From: p.rank, Shared: &e.proto.hub.shared}
	p.down = nil
	d := newDial(e.life, p.dial.Load().number+1)
	if p.next != nil {
		d.number = p.next.number
		d.heard = true
		d.theirs <- *p.next
		p.next = nil
	}
	p.dial.Store(d)
	p.id = d.id(p.rank)
	defer close(p.remake) // who waits finds the new dial begun
	p.remake = nil
	p.callLocked()
	if k.begun.Load() {
		p.startTalkLocked()
	}
}

// release gives back the memory of a connection that is over. What a peer is still in the
// middle of writing to is left for Close. Owner's.
func (p *Peer) release() {
	var kept []func() error
	if ch := p.talk.ch; ch != nil {
		kept = append(kept, ch.Close)
	}
	for _, r := range []fabric.Region{p.asks.mine, p.serves.region} {
		if r != nil {
			kept = append(kept, r.Close)
		}
	}
	for _, end := range kept {
		if end() != nil {
			p.eng.remains = append(p.eng.remains, end)
		}
	}
}
