package rma

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/wireup"
)

// Keys of what two ranks tell each other through the job.
const (
	keyKnock  = "ep"    // a knock: connect with it
	keyRefuse = "ep/no" // why not
	keyTalk   = "talk"  // nothing: there will be messages, if the other side makes its channel
)

// selfID marks the passive end of the connection with oneself.
const selfID = 1 << 31

// dial is the making of the connection with a peer, at the first operation in
// either direction: once in a job, for a connection that is lost is not replaced.
//
//	this side                         the peer
//	first operation (queued)
//	endpoint, knock: its address ──► endpoint
//	Connect             ◄── its address, knock
//	post what is queued               Connect
//
// Both sides do the same, started by their own first operation or by the other's
// knock, whichever is first; knocks that cross are the same as one of each. The
// answer comes from a goroutine of the engine: the peer's application need not
// call anything.
type dial struct {
	begun  atomic.Bool
	theirs chan knock    // the peer's, once
	done   chan struct{} // closed when connecting has ended, well or not

	// Engine.mu guards these, err only until done is closed.
	hangUp  context.CancelCauseFunc // ends it early; nil before it has begun
	heard   bool                    // the peer has knocked
	refused bool                    // and was told no
	err     error                   // why there is no connection
}

func newDial() dial { return dial{theirs: make(chan knock, 1), done: make(chan struct{})} }

// call begins to connect, if nobody has. From any goroutine, the owner's
// included; it does not wait.
func (p *Peer) call() {
	if p.dial.begun.Load() {
		return
	}
	p.eng.mu.Lock()
	defer p.eng.mu.Unlock()
	p.callLocked()
}

// callLocked is call under Engine.mu.
func (p *Peer) callLocked() {
	e := p.eng
	if e.closed.Load() || p.dial.begun.Swap(true) {
		return
	}
	ctx, hangUp := context.WithCancelCause(e.life)
	p.dial.hangUp = hangUp
	e.begin(func() {
		defer hangUp(nil)
		p.connect(ctx)
	})
}

// connect makes the connection, or notes why there is none.
func (p *Peer) connect(ctx context.Context) {
	e := p.eng
	if d := e.cfg.SetupTimeout; d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, d, fmt.Errorf("%w: no answer within %v: %w", ErrNoConnection, d, context.DeadlineExceeded))
		defer cancel()
	}
	var theirs knock
	ep, self, err := p.join(ctx, &theirs)
	if err != nil {
		p.awaitReason(ctx)
		err = p.unconnected(ctx, err)
	}
	e.mu.Lock()
	p.dial.err = err
	refuse := err != nil && p.refusal(err)
	e.mu.Unlock()
	e.prog.Do(func() {
		switch {
		case err != nil:
			e.proto.downWith(p, err)
		case p.down != nil: // meanwhile
			p.ep, p.self = ep, self
			p.close()
		default:
			p.ep, p.self = ep, self
			p.near, _ = ep.(fabric.Direct)
			p.unaided.Store(p.own || e.unaided(ep, p.link))
			e.proto.feel(p, &theirs)
			if !p.own {
				e.watches.tell(PeerEvent{Rank: p.rank, State: PeerUp})
			}
			e.proto.wake(p)
		}
	})
	close(p.dial.done)
	e.prog.Kick()
	if refuse {
		p.refuseKnock(err)
	}
}

// unaided reports whether the link with that index carries out requests on any memory
// of the peer at the other end of ep by itself.
func (e *Engine) unaided(ep fabric.Endpoint, link int) bool {
	if n, ok := ep.(fabric.Neighbour); ok {
		return n.Near().Private == "process_vm"
	}
	return !e.links[link].Caps().TargetProgress
}

// join makes the endpoint and connects it with that of the peer, whose knock it fills in.
func (p *Peer) join(ctx context.Context, theirs *knock) (ep, self fabric.Endpoint, err error) {
	e := p.eng
	l := e.links[p.link]
	o := links.ConnectOptions{
		EndpointOptions: fabric.EndpointOptions{ID: uint32(p.rank), Depth: e.cfg.Depth, PeerTimeout: e.cfg.PeerTimeout},
		Own:             e.prog.Do,
	}
	if p.own {
		return links.Loopback(ctx, l, o, selfID)
	}
	ep, err = links.Join(ctx, l, o, func(mine []byte) ([]byte, error) {
		if err := e.job.Tell(ctx, p.rank, keyKnock, p.knock(mine)); err != nil {
			return nil, err
		}
		select {
		case *theirs = <-p.dial.theirs:
			return theirs.address, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-e.job.Done():
			return nil, e.job.Err()
		}
	})
	return ep, nil, err
}

// newsTime is how many PeerTimeouts a connection that could not be made waits for
// the reason: a peer that is leaving closes its end before the job tells of it.
const newsTime = 3

// awaitReason returns when ctx has ended, with the reason as its cause, or when
// there seems to be none.
func (p *Peer) awaitReason(ctx context.Context) {
	if p.own {
		return
	}
	t := time.NewTimer(newsTime * p.eng.cfg.PeerTimeout)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-p.eng.job.Done():
	case <-t.C:
	}
}

// unconnected says in this package's terms why a connection was not made.
func (p *Peer) unconnected(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case cause != nil && (errors.Is(cause, ErrNoConnection) || errors.Is(cause, ErrPeerGone) || errors.Is(cause, ErrPeerHung)):
		return cause
	case cause != nil: // the engine is being closed
		return ErrClosed
	}
	if err = p.eng.jobCause(p.rank, err); errors.Is(err, ErrPeerGone) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNoConnection, err)
}

// connected returns the endpoint, and makes the connection if need be.
func (p *Peer) connected(ctx context.Context) (fabric.Endpoint, error) {
	p.call()
	select {
	case <-p.dial.done:
		if p.dial.err != nil {
			return nil, p.dial.err
		}
		return p.ep, nil // set before done was closed, and never again
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// told takes what a peer tells through the job. The peer is not trusted: it is
// heard once, and what it says concerns the connection with it only. It runs in
// the goroutine that reads from the job, and must not wait.
func (e *Engine) told(from int, key string, val []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed.Load() || from == e.Rank() {
		return
	}
	p := e.peers[from]
	switch {
	case key == keyRefuse:
		if p.dial.hangUp != nil {
			p.dial.hangUp(fmt.Errorf("%w: rank %d: %.200q", ErrNoConnection, from, val))
		}
	case key == keyTalk:
		p.wanted()
	case key != keyKnock || p.dial.heard:
		e.cfg.Logger.Warn("rma: a peer says what it should not", "rank", from, "key", key)
	default:
		p.dial.heard = true
		k, err := parseKnock(val)
		if err != nil || k.link != p.num {
			k = knock{} // no address at all
		}
		p.dial.theirs <- k
		if err := p.dial.err; err != nil && p.refusal(err) { // too late
			e.begin(func() { p.refuseKnock(err) })
			return
		}
		p.callLocked()
	}
}

// refusal reports whether the peer, which may wait for an answer to its knock, is
// to be told that there is none. Once. Under Engine.mu.
func (p *Peer) refusal(err error) bool {
	if p.own || p.dial.refused || !p.dial.heard || p.eng.closed.Load() || errors.Is(err, ErrPeerGone) {
		return false
	}
	p.dial.refused = true
	return true
}

// refuseKnock tells the peer that there will be no connection.
func (p *Peer) refuseKnock(err error) {
	text := err.Error()
	if err := p.eng.job.Tell(p.eng.life, p.rank, keyRefuse, []byte(text[:min(len(text), wireup.MaxTell)])); err != nil {
		p.eng.cfg.Logger.Debug("rma: peer not told that it is refused", "rank", p.rank, "err", err)
	}
}
