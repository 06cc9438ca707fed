package bringup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/progress"
	"github.com/seed33544411/rma/sampling"
)

var (
	// ErrClosed says that the engine was closed.
	ErrClosed = errors.New("rma: engine is closed")

	// ErrNoConnection says that the connection with a peer could not be made.
	ErrNoConnection = errors.New("no connection with the peer")

	// errRemade is why operations on a connection end that is made anew.
	errRemade = errors.New("the connection is being made anew")
)

// Keys of what two ranks tell each other about their connection through the job.
const (
	KeyRequest = "ep"    // a Request
	KeyRefuse  = "ep/no" // the number of a connection (4), why there is none: AppendRefusal
	KeyPath    = "path"  // the number of a connection (4), a class to measure, or nothing: figures are published
)

// Dialer makes the connections of an engine. Its methods may be called from any goroutine.
type Dialer struct {
	links *Links
	prog  *progress.Engine
	tasks *Tasks

	mu    sync.Mutex // guards what Connectors and Connections say; taken before that of tasks
	peers []*Connector
}

// NewDialer returns a dialer over links that prog drives, with a Connector for each of
// peers, the ranks of the job. numbers are those of the kinds of links.
func NewDialer(l *Links, prog *progress.Engine, tasks *Tasks, numbers []uint8, peers []Peer) *Dialer {
	tasks.prog = prog
	d := &Dialer{links: l, prog: prog, tasks: tasks}
	for rank, p := range peers {
		c := &Connector{d: d, peer: p, rank: rank, link: l.to[rank], number: numbers[l.to[rank]], own: rank == l.job.Rank()}
		c.now.Store(c.connection(0))
		d.peers = append(d.peers, c)
	}
	return d
}

// Connector makes the connections with that rank.
func (d *Dialer) Connector(rank int) *Connector { return d.peers[rank] }

// Connect returns the endpoint that is connected with the rank, and connects if need be.
func (d *Dialer) Connect(ctx context.Context, rank int) (fabric.Endpoint, error) {
	return d.peers[rank].Endpoint(ctx)
}

// Peer is an engine's side of the connections with a rank. All methods but Heartbeat and Cause, which any goroutine may call, are
// called by the owner of the links; they must not wait.
type Peer interface {
	// Heartbeat is what the rank may read to see that this engine makes progress.
	Heartbeat() Heartbeat

	// Up takes a connection that is made, by request of the peer; self is the other end
	// of one with oneself. They are the peer's to close.
	Up(ep, self fabric.Endpoint, theirs *Request)

	// Down is told that there is no connection, or none any more, and why. It closes the
	// endpoint; what was posted comes back flushed.
	Down(why error)

	// Idle reports whether nothing of a connection that is over is under way any more.
	Idle() bool

	// Replan takes the parameters of Links.Path, which have changed.
	Replan()

	// Forget lets go of what belonged to a connection that is over.
	Forget()

	// Renew begins with the next one, which is being made.
	Renew(c *Connection)

	// Cause says in the engine's terms why the job failed.
	Cause(err error) error
}

// Connector makes the connections with one peer: the first at the first operation in
// either direction, the next ones at Reset.
type Connector struct {
	d      *Dialer
	peer   Peer
	rank   int
	link   int
	number uint8 // of the kind of link
	own    bool  // with this rank itself

	now atomic.Pointer[Connection]

	// Dialer.mu guards these.
	remake chan struct{} // closed when the old connection is out of the way; nil if none is being made anew
	next   *Request      // for the connection to come
	asked  int           // how often the peer has had its path measured
}

// connection returns one that nobody has called for.
func (c *Connector) connection(number uint32) *Connection {
	n := &Connection{c: c, Number: number, theirs: make(chan Request, 1), done: make(chan struct{})}
	n.life, n.end = context.WithCancel(c.d.tasks.Life())
	return n
}

// Now is the present connection, be it there or not.
func (c *Connector) Now() *Connection { return c.now.Load() }

// Call begins to connect, if nobody has. It does not wait. Anybody may call it, the owner
// of the links included.
func (c *Connector) Call() {
	if c.now.Load().begun.Load() {
		return
	}
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	c.call()
}

// call is Call under Dialer.mu.
func (c *Connector) call() {
	n := c.now.Load()
	if c.remake != nil || n.begun.Swap(true) {
		return
	}
	ctx, hangUp := context.WithCancelCause(c.d.tasks.Life())
	n.hangUp = hangUp
	c.d.tasks.Go(func() {
		defer hangUp(nil)
		n.connect(ctx)
	})
}

// Endpoint returns the endpoint when there is a connection, and connects if need be.
func (c *Connector) Endpoint(ctx context.Context) (fabric.Endpoint, error) {
	n := c.now.Load()
	c.Call()
	select {
	case <-n.done:
		return n.ep, n.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// HangUp ends the making of a connection, if one is being made. It reports whether one is,
// or was.
func (c *Connector) HangUp(why error) bool {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	return c.now.Load().giveUp(why)
}

// Called reports whether anybody has called for the present connection.
func (c *Connector) Called() bool { return c.now.Load().begun.Load() }

// Told takes what the peer tells under a key of this package. The peer is not trusted: it
// is heard once a connection. It returns false if the peer should not have said it. It does
// not wait.
func (c *Connector) Told(key string, val []byte) bool {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	if key == KeyRequest {
		return c.requested(val)
	}
	n := c.now.Load()
	number, text, ok := cutNumber(val)
	switch {
	case !ok || number != n.Number:
	case key == KeyPath:
		if c.rank > c.d.links.job.Rank() || n.guided || len(text) > 0 && c.asked == maxSurveys {
			return false
		}
		if n.guided = true; len(text) > 0 {
			c.asked++
		}
		c.d.tasks.Go(func() { n.Go(func() { n.follow(sampling.Class(text)) }) })
	default:
		n.refusedLocked(Refused(c.rank, text))
	}
	return true
}

// requested takes the peer's request. Under Dialer.mu.
func (c *Connector) requested(val []byte) bool {
	n := c.now.Load()
	r, err := ParseRequest(val)
	if err != nil {
		r.Number = n.Number
	}
	if err != nil || r.Link != c.number {
		r = Request{Number: r.Number} // no address at all
	}
	switch {
	case int32(r.Number-n.Number) > 0: // the peer makes the connection anew
		c.next = &r
		c.renewLocked()
	case r.Number != n.Number:
		return true // of one that is over
	case n.heard:
		return false
	default:
		n.hear(r)
		if n.err != nil && n.mustRefuse() { // too late
			c.d.tasks.Go(func() { n.Refuse(n.err) })
			return true
		}
		c.call()
	}
	return true
}

// Reset returns when the connection is there, made anew if it was down: nil, or why there
// is none. If ctx ends first the making goes on, and a further call waits for it. The first
// operation makes a connection that nobody has called for.
func (c *Connector) Reset(ctx context.Context, down bool) error {
	life := c.d.tasks.Life()
	for {
		c.d.mu.Lock()
		if down {
			down = false
			c.renewLocked()
		}
		remake := c.remake
		c.d.mu.Unlock()
		if remake != nil {
			select {
			case <-remake:
			case <-ctx.Done():
				return ctx.Err()
			case <-life.Done():
				return ErrClosed
			}
		}
		n := c.now.Load()
		if !n.begun.Load() {
			return nil
		}
		select {
		case <-n.done:
			if errors.Is(n.err, errRemade) {
				continue // the peer has begun another one before this was there
			}
			return n.err
		case <-ctx.Done():
			return ctx.Err()
		case <-life.Done():
			return ErrClosed
		}
	}
}

// renewLocked begins to make the connection anew, if nobody has. Under Dialer.mu.
func (c *Connector) renewLocked() {
	if c.remake != nil {
		return
	}
	c.remake = make(chan struct{})
	c.d.tasks.Go(func() {
		if c.bury(c.now.Load()) {
			c.d.prog.Do(c.renew)
		}
	})
}

// bury ends the connection and all that is under way on it. It returns false if the
// engine is closed before.
func (c *Connector) bury(n *Connection) bool {
	life, prog := c.d.tasks.Life(), c.d.prog
	c.d.mu.Lock()
	n.over = true
	n.giveUp(fmt.Errorf("%w: %w", ErrNoConnection, errRemade))
	c.d.mu.Unlock()
	if n.begun.Load() {
		select {
		case <-n.done: // soon: it was told to give up
		case <-life.Done():
			return false
		}
	}
	prog.Do(func() { c.peer.Down(errRemade) })
	n.end()
	n.tasks.Wait() // the last of them may hand over operations that are to be ended
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		idle := false
		prog.Do(func() { idle = c.peer.Idle() })
		if idle {
			break
		}
		prog.Progress()
		select {
		case <-tick.C:
		case <-life.Done():
			return false
		}
	}
	for _, key := range n.published {
		_ = c.d.links.job.Take(key) // a server that is gone holds nothing
	}
	return true
}

// renew puts a new connection in the place of one that is over. Owner's.
func (c *Connector) renew() {
	c.d.prog.AssertOwned()
	if c.d.tasks.Life().Err() != nil {
		return
	}
	c.peer.Forget()
	c.d.mu.Lock()
	n := c.connection(c.now.Load().Number + 1)
	if c.next != nil {
		n.Number = c.next.Number
		n.hear(*c.next)
		c.next = nil
	}
	c.now.Store(n)
	remake := c.remake
	c.remake = nil
	c.call()
	c.d.mu.Unlock()
	close(remake) // whoever waits finds the new connection begun
	c.peer.Renew(n)
}
