package rma

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/wireup"
)

// Keys of what two ranks tell each other through the job.
const (
	keyKnock  = "ep"    // a knock: connect with it
	keyRefuse = "ep/no" // the number of a connection (4), why there will be none
	keyTalk   = "talk"  // the number of the connection (4) that there will be messages on, if the other side makes its channel
)

// The ID of an endpoint is the rank of the peer and, above, the number of the
// connection: links may have an event of one that is over. selfID marks the passive end
// of the connection with oneself.
const (
	rankBits = 16
	selfID   = 1 << 31
)

func (d *dial) id(rank int) uint32 { return uint32(rank) | d.number<<rankBits&^selfID }

// of is the peer that the endpoint of this ID connects with; nil if it is over, or the
// passive end of the connection with oneself.
func (t *proto) of(ep uint32) *Peer {
	if r := ep & (1<<rankBits - 1); int64(r) < int64(len(t.peers)) && t.peers[r].id == ep {
		return t.peers[r]
	}
	return nil
}

// dial is the making of a connection with a peer, at the first operation in either
// direction, and its life. One that is lost is replaced only by Peer.Reset, and the
// next has the next number: what belongs to another one is told by it.
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
	number uint32
	begun  atomic.Bool
	theirs chan knock    // the peer's, once
	done   chan struct{} // closed when connecting has ended, well or not

	// Engine.mu guards these, err only until done is closed.
	hangUp  context.CancelCauseFunc // ends it early; nil before it has begun
	heard   bool                    // the peer has knocked
	refused bool                    // and was told no
	over    bool                    // there will be no more tasks
	err     error                   // why there is no connection

	ep    fabric.Endpoint // set before done is closed, nil if there is none
	life  context.Context // of what the connection has besides: channels, slots
	end   context.CancelFunc
	tasks sync.WaitGroup // goroutines that see to it
}

func newDial(life context.Context, number uint32) *dial {
	d := &dial{number: number, theirs: make(chan knock, 1), done: make(chan struct{})}
	d.life, d.end = context.WithCancel(life)
	return d
}

// task runs f as part of the life of the present connection, unless that is over. Under
// Engine.mu, and not when the engine is closed.
func (p *Peer) task(f func(d *dial)) {
	d := p.dial.Load()
	if d.over {
		return
	}
	p.eng.outside(func() {
		if !d.over {
			d.tasks.Add(1)
			p.eng.tasks.Go(func() {
				defer d.tasks.Done()
				f(d)
			})
		}
	})
}

// published are the names under which something may be published for a connection.
var published = [...]string{"talk", "accumulate"}

// name is the name under which one of two ranks publishes something about their
// connection for the other.
func (d *dial) name(what string, rank int) string {
	return fmt.Sprintf("%s/%d/%d", what, rank, d.number)
}

// call begins to connect, if nobody has. From any goroutine, the owner's
// included; it does not wait.
func (p *Peer) call() {
	if p.dial.Load().begun.Load() {
		return
	}
	p.eng.mu.Lock()
	defer p.eng.mu.Unlock()
	p.callLocked()
}

// callLocked is call under Engine.mu.
func (p *Peer) callLocked() {
	e, d := p.eng, p.dial.Load()
	if e.closed.Load() || p.remake != nil || d.begun.Swap(true) {
		return
	}
	ctx, hangUp := context.WithCancelCause(e.life)
	d.hangUp = hangUp
	e.begin(func() {
		defer hangUp(nil)
		p.connect(ctx, d)
	})
}

// connect makes the connection, or notes why there is none.
func (p *Peer) connect(ctx context.Context, d *dial) {
	e := p.eng
	if limit := e.cfg.SetupTimeout; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w: no answer within %v: %w", ErrNoConnection, limit, context.DeadlineExceeded))
		defer cancel()
	}
	var theirs knock
	ep, self, err := p.join(ctx, d, &theirs)
	if err != nil {
		p.awaitReason(ctx)
		err = p.unconnected(ctx, err)
	}
	e.mu.Lock()
	d.err, d.ep = err, ep
	refuse := err != nil && p.refusal(d)
	e.mu.Unlock()
	e.prog.Do(func() {
		switch {
		case err != nil:
			p.downWith(err)
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
			e.proto.one.wake(p)
		}
	})
	close(d.done)
	e.prog.Kick()
	if refuse {
		p.refuseKnock(d)
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
func (p *Peer) join(ctx context.Context, d *dial, theirs *knock) (ep, self fabric.Endpoint, err error) {
	e := p.eng
	l := e.links[p.link]
	o := links.ConnectOptions{
		EndpointOptions: fabric.EndpointOptions{ID: d.id(p.rank), Depth: e.cfg.Depth, PeerTimeout: e.cfg.PeerTimeout},
		Own:             e.prog.Do,
	}
	if p.own {
		return links.Loopback(ctx, l, o, selfID)
	}
	ep, err = links.Join(ctx, l, o, func(mine []byte) ([]byte, error) {
		if err := e.job.Tell(ctx, p.rank, keyKnock, p.knock(d, mine)); err != nil {
			return nil, err
		}
		select {
		case *theirs = <-d.theirs:
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
	d := p.dial.Load()
	p.call()
	select {
	case <-d.done:
		return d.ep, d.err
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
	d := p.dial.Load()
	switch key {
	case keyRefuse:
		if n, text, ok := ofNumber(val); ok && n == d.number && d.hangUp != nil {
			d.hangUp(fmt.Errorf("%w: rank %d: %.200q", ErrNoConnection, from, text))
		}
		return
	case keyTalk:
		if n, _, ok := ofNumber(val); ok && n == d.number {
			p.wanted()
		}
		return
	case keyKnock:
		if p.knocked(d, val) {
			return
		}
	}
	e.cfg.Logger.Warn("rma: a peer says what it should not", "rank", from, "key", key)
}

// knocked takes a knock. It returns false if there should be none. Under Engine.mu.
func (p *Peer) knocked(d *dial, val []byte) bool {
	k, err := parseKnock(val)
	if err != nil {
		k.number = d.number
	}
	if err != nil || k.link != p.num {
		k = knock{number: k.number} // no address at all
	}
	switch {
	case int32(k.number-d.number) > 0: // the peer makes the connection anew
		p.next = &k
		p.remakeLocked()
	case k.number != d.number:
		return true // of one that is over
	case d.heard:
		return false
	default:
		d.heard = true
		d.theirs <- k
		if d.err != nil && p.refusal(d) { // too late
			p.eng.begin(func() { p.refuseKnock(d) })
			return true
		}
		p.callLocked()
	}
	return true
}

// ofNumber takes the number of the connection that is meant off the front of what a
// peer tells.
func ofNumber(val []byte) (number uint32, rest []byte, ok bool) {
	if len(val) < 4 {
		return 0, nil, false
	}
	return binary.LittleEndian.Uint32(val), val[4:], true
}

// refusal reports whether the peer, which may wait for an answer to its knock, is
// to be told that there is none. Once. Under Engine.mu.
func (p *Peer) refusal(d *dial) bool {
	if p.own || d.refused || !d.heard || p.eng.closed.Load() || errors.Is(d.err, ErrPeerGone) {
		return false
	}
	d.refused = true
	return true
}

// refuseKnock tells the peer that there will be no connection.
func (p *Peer) refuseKnock(d *dial) {
	val := append(binary.LittleEndian.AppendUint32(nil, d.number), d.err.Error()...)
	if err := p.eng.job.Tell(p.eng.life, p.rank, keyRefuse, val[:min(len(val), wireup.MaxTell)]); err != nil {
		p.eng.cfg.Logger.Debug("rma: peer not told that it is refused", "rank", p.rank, "err", err)
	}
}
