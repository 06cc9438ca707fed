package bringup

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
	"github.com/seed33544411/rma/sampling"
)

// The ID of an endpoint is the rank of the peer and, above, the number of the
// connection: links may have an event of one that is over. selfID marks the passive end
// of the connection with oneself.
const (
	rankBits = 16
	selfID   = 1 << 31
)

// Rank is the rank that an endpoint of this ID is connected with.
// Hot path.
func Rank(id uint32) int { return int(id & (1<<rankBits - 1)) }

// Connection is a connection with a peer, from the making of it on. One that is lost is
// replaced only by Connector.Reset, and the next has the next number: what belongs to
// another one is told by it.
//
//	this side                             the peer
//	first operation (queued)
//	endpoint, request: its address  ──►   endpoint
//	Connect             ◄── its address, request
//	post what is queued                   Connect
//
// Both sides do the same, started by their own first operation or by the other's
// request, whichever is first; requests that cross are the same as one of each. The
// answer comes from a goroutine of the engine: the peer's application need not
// call anything.
type Connection struct {
	c      *Connector
	Number uint32 // among those with the peer, from 0
	begun  atomic.Bool
	theirs chan Request  // the peer's, once
	done   chan struct{} // closed when connecting has ended, well or not

	// Dialer.mu guards these, err only until done is closed.
	hangUp  context.CancelCauseFunc // ends it early; nil before it has begun
	heard   bool                    // the peer has sent its request
	refused bool                    // and was told no
	ended   bool                    // the peer has refused the connection, made or not
	guided  bool                    // the peer has told of the path
	over    bool                    // there will be no more tasks
	err     error                   // why there is no connection

	published []string // keys in the job, of this side

	ep    fabric.Endpoint // set before done is closed, nil if there is none
	life  context.Context // of what the connection has besides: channels, slots
	end   context.CancelFunc
	tasks sync.WaitGroup // goroutines that see to it
}

// ID is the ID of its endpoint.
func (n *Connection) ID() uint32 { return uint32(n.c.rank) | n.Number<<rankBits&^selfID }

// Life is done when the connection is over and to be made anew, or the engine is closed.
func (n *Connection) Life() context.Context { return n.life }

// Publish tells the peer something about the connection, once; its Published returns it. It
// is taken back when the connection is made anew.
func (n *Connection) Publish(ctx context.Context, what string, val []byte) error {
	return n.put(ctx, n.key(what, n.c.rank), val)
}

// put publishes what is taken back when the connection is made anew.
func (n *Connection) put(ctx context.Context, key string, val []byte) error {
	d := n.c.d
	d.mu.Lock()
	n.published = append(n.published, key)
	d.mu.Unlock()
	return d.links.job.Put(ctx, key, val)
}

// Published waits for what the peer tells.
func (n *Connection) Published(ctx context.Context, what string) ([]byte, error) {
	j := n.c.d.links.job
	return j.Get(ctx, n.c.rank, n.key(what, j.Rank()))
}

// key is the name of what is published for one of the two ranks.
func (n *Connection) key(what string, rank int) string {
	return fmt.Sprintf("%s/%d/%d", what, rank, n.Number)
}

// Numbered is what concerns this connection alone, for Job.Tell; IsNumbered reports whether
// a peer has told it.
func (n *Connection) Numbered() []byte { return binary.LittleEndian.AppendUint32(nil, n.Number) }

// IsNumbered is told of by Numbered.
func (n *Connection) IsNumbered(val []byte) bool {
	number, _, ok := cutNumber(val)
	return ok && number == n.Number
}

// Go runs f in a goroutine that ends with the connection, unless that or the engine is
// over. It does not wait. Anybody may call it, the owner of the links included.
func (n *Connection) Go(f func()) {
	d := n.c.d
	if !d.tasks.outside(func() { n.Go(f) }) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if n.over {
		return
	}
	n.tasks.Add(1)
	if !d.tasks.begin(func() { defer n.tasks.Done(); f() }) {
		n.tasks.Done()
	}
}

// giveUp ends the making of it. It reports whether that has begun. Under Dialer.mu.
func (n *Connection) giveUp(why error) bool {
	if n.hangUp != nil {
		n.hangUp(why)
	}
	return n.hangUp != nil
}

// hear takes the peer's request, the first. Under Dialer.mu.
func (n *Connection) hear(r Request) {
	n.heard = true
	n.theirs <- r
}

// connect makes the connection, or notes why there is none.
func (n *Connection) connect(ctx context.Context) {
	d := n.c.d
	if limit := d.links.SetupTimeout; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w: no answer within %v: %w", ErrNoConnection, limit, context.DeadlineExceeded))
		defer cancel()
	}
	var theirs Request
	ep, self, err := n.join(ctx, &theirs)
	if err != nil {
		if !errors.Is(err, fabric.ErrResources) { // which has to do with this side alone
			n.awaitReason(ctx)
		}
		err = n.unconnected(ctx, err)
	}
	d.mu.Lock()
	n.err, n.ep = err, ep
	refuse := err != nil && n.mustRefuse()
	d.mu.Unlock()
	d.prog.Do(func() {
		if err != nil {
			n.c.peer.Down(err)
		} else {
			n.c.peer.Up(ep, self, &theirs)
		}
	})
	close(n.done)
	d.prog.Kick()
	if err == nil && !n.c.own && d.links.Sampling != sampling.Off {
		n.Go(n.survey)
	}
	if refuse {
		n.Refuse(n.err)
	}
}

// join makes the endpoint and connects it with that of the peer, whose request it fills in.
func (n *Connection) join(ctx context.Context, theirs *Request) (ep, self fabric.Endpoint, err error) {
	c, l := n.c, n.c.d.links
	link := l.open[c.link]
	o := links.ConnectOptions{
		EndpointOptions: fabric.EndpointOptions{ID: n.ID(), Depth: l.Depth, PeerTimeout: l.PeerTimeout},
		Own:             c.d.prog.Do,
	}
	if c.own {
		return links.Loopback(ctx, link, o, selfID)
	}
	ep, err = links.Join(ctx, link, o, func(mine []byte) ([]byte, error) {
		r := Request{Link: c.number, Number: n.Number, Heartbeat: c.peer.Heartbeat(), Address: mine}
		if err := l.job.Tell(ctx, c.rank, KeyRequest, r.Append(nil)); err != nil {
			return nil, err
		}
		select {
		case *theirs = <-n.theirs:
			return theirs.Address, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-l.job.Done():
			return nil, l.job.Err()
		}
	})
	return ep, nil, err
}

// newsTime is how many PeerTimeouts a connection that could not be made waits for
// the reason: a peer that is leaving closes its end before the job tells of it.
const newsTime = 3

// awaitReason returns when ctx has ended, with the reason as its cause, or when
// there seems to be none.
func (n *Connection) awaitReason(ctx context.Context) {
	if n.c.own {
		return
	}
	l := n.c.d.links
	t := time.NewTimer(newsTime * l.PeerTimeout)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-l.job.Done():
	case <-t.C:
	}
}

// unconnected says why a connection was not made. Where ctx has ended, somebody has hung
// up and said why, or the engine is being closed.
func (n *Connection) unconnected(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case cause == nil:
	case errors.Is(cause, context.Canceled):
		return ErrClosed
	default:
		return cause
	}
	if err = n.c.peer.Cause(err); errors.Is(err, fabric.ErrPeerGone) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNoConnection, err)
}

// mustRefuse reports whether the peer, which may wait for an answer to its request, is
// to be told that there is none. Once. Under Dialer.mu.
func (n *Connection) mustRefuse() bool {
	if n.c.own || n.refused || !n.heard || n.c.d.tasks.Life().Err() != nil || errors.Is(n.err, fabric.ErrPeerGone) {
		return false
	}
	n.refused = true
	return true
}

// Refuse tells the peer that there is no connection of this number, and why. The peer closes
// its side if it has made one. It waits until the job has passed that on.
func (n *Connection) Refuse(why error) {
	l := n.c.d.links
	val := AppendRefusal(n.Numbered(), why)
	if err := l.job.Tell(n.c.d.tasks.Life(), n.c.rank, KeyRefuse, val); err != nil {
		l.Log.Debug("rma: peer not told that it is refused", "rank", n.c.rank, "err", err)
	}
}

// refusedLocked takes the peer's refusal, once: it ends the making of the connection, or the
// connection. Under Dialer.mu.
func (n *Connection) refusedLocked(why error) {
	if !n.giveUp(why) || n.ended {
		return
	}
	n.ended = true
	d := n.c.d
	d.tasks.Go(func() {
		select {
		case <-n.done:
		case <-d.tasks.Life().Done():
			return
		}
		d.prog.Do(func() {
			if n.err == nil && n.c.now.Load() == n {
				n.c.peer.Down(why)
			}
		})
	})
}
