package bringup

import (
	"cmp"
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
	"github.com/seed33544411/rma/sampling"
)

// The ID of an endpoint is the rank of the peer and, above it, the number of the
// connection, because links may report events of a connection that is over. selfID marks
// the passive end of this rank's connection with itself.
const (
	rankBits = 16
	selfID   = 1 << 31
)

// Rank returns the rank that an endpoint with this ID is connected with.
// Hot path.
func Rank(id uint32) int { return int(id & (1<<rankBits - 1)) }

// Connection is a connection with a peer, from before it is made. A lost one is replaced
// only by Connector.Reset. Its successor has the next number, by which data of other
// connections is recognised.
//
//	this side                             the peer
//	first operation (queued)
//	endpoint, request: its address  ──►   endpoint
//	Connect             ◄── its address, request
//	ready                            ──►  Connect
//	post what is queued ◄──               ready
//
// Both sides do the same, started by their own first operation or by the other's request,
// whichever comes first; requests may cross. A goroutine of the engine answers: the peer's
// application makes no call. Ranks tell each other that they are ready only over links whose
// Connect does not wait for the peer (fabric.Caps.ConnectsAlone).
type Connection struct {
	c      *Connector
	Number uint32 // of the connections with the peer, from 0
	begun  atomic.Bool
	second bool          // it must not use the first link of a fabric.Fork, which the one before could not
	theirs chan Request  // the peer's, once
	ready  chan struct{} // closed when the peer has told that it is connected
	done   chan struct{} // closed when connecting has succeeded or failed
	placed chan struct{} // closed when the path has figures, which follow may replace

	// Dialer.mu guards these, err only until done is closed.
	hangUp    context.CancelCauseFunc // cancels connecting; nil before that has begun
	requested bool                    // the peer has sent its request
	connected bool                    // the peer has sent KeyReady
	refused   bool                    // the request was refused
	ended     bool                    // the peer has refused the connection, made or not
	guided    bool                    // the peer has sent KeyPath
	over      bool                    // Go starts no more tasks
	err       error                   // why there is no connection

	rails   []*railConn // the present attempts; Dialer.mu guards the elements
	lacking uint8       // rails that the peer has and this side does not, by number; under Dialer.mu

	letters   chan []byte // of the peer's endpoint
	rejoining sync.Mutex  // held during Rejoin

	published []string // keys that this side has put in the job

	ep    fabric.Endpoint // set before done is closed, nil if there is none
	life  context.Context // of channels and slots that belong to the connection
	end   context.CancelFunc
	tasks sync.WaitGroup // started by Go
}

// ID returns the ID of the connection's endpoint.
func (n *Connection) ID() uint32 { return uint32(n.c.rank) | n.Number<<rankBits&^selfID }

// Life is done when the connection is being replaced, or the engine is closed.
func (n *Connection) Life() context.Context { return n.life }

// Publish publishes a value about the connection to the peer, once; the peer's Published
// returns it. The value is removed when the connection is replaced.
func (n *Connection) Publish(ctx context.Context, what string, val []byte) error {
	return n.put(ctx, n.key(what, n.c.rank), val)
}

// put publishes a value that is removed when the connection is replaced.
func (n *Connection) put(ctx context.Context, key string, val []byte) error {
	d := n.c.d
	d.mu.Lock()
	n.published = append(n.published, key)
	d.mu.Unlock()
	return d.links.job.Put(ctx, key, val)
}

// Published waits for the value that the peer publishes, and returns it.
func (n *Connection) Published(ctx context.Context, what string) ([]byte, error) {
	j := n.c.d.links.job
	return j.Get(ctx, n.c.rank, n.key(what, j.Rank()))
}

// key returns the job's key of a value published for one of the two ranks.
func (n *Connection) key(what string, rank int) string {
	return fmt.Sprintf("%s/%d/%d", what, rank, n.Number)
}

// Numbered returns the encoded number of the connection, for values of Job.Send that
// concern this connection alone.
func (n *Connection) Numbered() []byte { return binary.LittleEndian.AppendUint32(nil, n.Number) }

// IsNumbered reports whether a peer's value begins with the number of this connection.
func (n *Connection) IsNumbered(val []byte) bool {
	number, _, ok := cutNumber(val)
	return ok && number == n.Number
}

// Go runs f in a goroutine for which the end of the connection waits; not if the connection
// or the engine is over. Go does not wait. Any goroutine may call it, the owner of the
// links included.
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
	if !d.tasks.begin(func() { defer n.tasks.Done(); defer d.spare()(); f() }) {
		n.tasks.Done()
	}
}

// toldReady handles KeyReady of the peer. It returns false if the peer violates the protocol.
// Under Dialer.mu.
func (n *Connection) toldReady(rest []byte) bool {
	if !n.requested || n.connected || len(rest) > 0 {
		return false
	}
	n.connected = true
	close(n.ready)
	return true
}

// giveUp cancels connecting. It reports whether that had begun. Under Dialer.mu.
func (n *Connection) giveUp(why error) bool {
	if n.hangUp != nil {
		n.hangUp(why)
	}
	return n.hangUp != nil
}

// accept accepts the peer's first request. Under Dialer.mu.
func (n *Connection) accept(r Request) {
	n.requested = true
	n.theirs <- r
}

// connect makes the connection, or records why there is none.
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
		if !errors.Is(err, fabric.ErrResources) && !errors.Is(err, fabric.ErrOtherWay) && // a failure of this side alone
			!errors.Is(err, wireup.ErrPeerGone) { // the reason itself, perhaps reported before connecting began
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
	for _, r := range n.rails {
		if err == nil {
			n.Go(r.connect)
		}
	}
	if err == nil && !n.c.own && d.links.Sampling != sampling.Off {
		n.Go(n.survey)
	} else {
		close(n.placed)
	}
	if refuse {
		n.Refuse(n.err)
	}
}

// join creates the endpoint and connects it with that of the peer, whose request it stores
// in theirs.
func (n *Connection) join(ctx context.Context, theirs *Request) (ep, self fabric.Endpoint, err error) {
	c, l := n.c, n.c.d.links
	link := l.open[c.link]
	fork, forks := link.(fabric.Fork)
	o := links.ConnectOptions{
		EndpointOptions: fabric.EndpointOptions{ID: n.ID(), Depth: l.Depth, PeerTimeout: l.PeerTimeout, Second: n.second, Prove: forks && n.Number > 0},
		Own:             c.d.prog.Do,
	}
	if c.own {
		return links.Loopback(ctx, link, o, selfID)
	}
	ep, err = links.Join(ctx, link, o, func(mine []byte) (_ []byte, err error) {
		r := Request{Link: c.number, Number: n.Number, Heartbeat: c.peer.Heartbeat(), Address: mine}
		if err = l.job.Send(ctx, c.rank, KeyRequest, r.Append(nil)); err != nil {
			return nil, err
		}
		if *theirs, err = hear(ctx, n.theirs, l.job.Done(), l.job.Err); err != nil {
			return nil, err
		}
		return theirs.Address, theirs.wrong
	}, func() error {
		if err := l.job.Send(ctx, c.rank, KeyReady, n.Numbered()); err != nil {
			return err
		}
		_, err := hear(ctx, n.ready, l.job.Done(), l.job.Err)
		return err
	})
	if err == nil && forks {
		if over, _ := fork.Over(ep); over.Name() != link.Name() {
			l.Log.Warn("rma: connected over another link", "rank", c.rank, "link", over.Name(), "instead of", link.Name(), "why", cmp.Or(fork.Usable(), errPeers))
		}
	}
	return ep, nil, err
}

// hear returns what the peer tells, the zero value if c is closed, or why it tells nothing any
// more: the result of why after ended is closed.
func hear[T any](ctx context.Context, c <-chan T, ended <-chan struct{}, why func() error) (val T, err error) {
	select {
	case val = <-c:
		return val, nil
	case <-ctx.Done():
		return val, context.Cause(ctx)
	case <-ended:
		return val, why()
	}
}

// errPeers is why a connection uses the second link of a fabric.Fork whose first can be used at this side.
var errPeers = errors.New("the peer cannot use it at present, or did not answer over it")

// newsTime is the number of PeerTimeouts that a failed connect waits for the reason: a peer
// that is leaving closes its endpoint before the job reports that.
const newsTime = 3

// awaitReason waits until ctx has ended, with the reason as its cause, until the job has
// ended, or until newsTime has passed.
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

// unconnected returns the error of a connection that was not made. If ctx has ended, its
// cause is the reason, or the engine is being closed.
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

// mustRefuse reports, once, whether to send a refusal to the peer, which may be waiting for
// an answer to its request. Under Dialer.mu.
func (n *Connection) mustRefuse() bool {
	if n.c.own || n.refused || !n.requested || n.c.d.tasks.Life().Err() != nil || errors.Is(n.err, fabric.ErrPeerGone) {
		return false
	}
	n.refused = true
	return true
}

// Refuse notifies the peer that there is no connection with this number, and why. The peer
// closes its side if it has made one. Refuse waits until the job has forwarded the refusal.
func (n *Connection) Refuse(why error) {
	l := n.c.d.links
	val := AppendRefusal(n.Numbered(), why)
	if err := l.job.Send(n.c.d.tasks.Life(), n.c.rank, KeyRefuse, val); err != nil {
		l.Log.Debug("rma: refusal of a connection not sent", "rank", n.c.rank, "err", err)
	}
}

// refusedLocked handles the peer's refusal, once: it cancels connecting, or ends the
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
