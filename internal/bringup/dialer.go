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

	// ErrReset says that the connection is being replaced: mostly by the peer.
	ErrReset = errors.New("the connection is being replaced (Peer.Reset)")

	// errReplaced is the error of operations on a connection that is being replaced, made or not.
	errReplaced = fmt.Errorf("%w: %w", fabric.ErrFlushed, ErrReset)
)

// Keys of the values that two ranks send each other about their connection through the job.
const (
	KeyRequest = "ep"    // a Request
	KeyReady   = "ep/ok" // the number of a connection (4): the sender is connected, and serves requests
	KeyRefuse  = "ep/no" // the number of a connection (4), why there is none: AppendRefusal
	KeyPath    = "path"  // the number of a connection (4), a class to measure, or nothing: figures are published
)

// Dialer makes the connections of an engine. Its methods may be called from any goroutine.
type Dialer struct {
	links *Links
	prog  *progress.Engine
	tasks *Tasks

	// SpareP lets the process have a P more while connections are made, see progress.SpareP.
	SpareP bool

	mu    sync.Mutex // guards the fields that Connectors and Connections list; taken before the lock of tasks
	peers []*Connector
}

// NewDialer returns a dialer over links that prog drives, with a Connector for each of
// peers, the ranks of the job. numbers holds the number of each link's kind.
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

// spare gives the process a P more, if it may have one, until end is called.
func (d *Dialer) spare() (end func()) {
	if !d.SpareP {
		return func() {}
	}
	return progress.SpareP()
}

// Connector returns the Connector of that rank.
func (d *Dialer) Connector(rank int) *Connector { return d.peers[rank] }

// Connect returns the endpoint that is connected with the rank, and connects if necessary.
func (d *Dialer) Connect(ctx context.Context, rank int) (fabric.Endpoint, error) {
	return d.peers[rank].Endpoint(ctx)
}

// Peer is an engine's side of the connections with a rank. The owner of the links calls its
// methods, except Heartbeat and Cause, which any goroutine may call. They must not wait.
type Peer interface {
	// Heartbeat returns the word that the rank may read to see that this engine makes
	// progress.
	Heartbeat() Heartbeat

	// Up reports that the connection is made; theirs is the peer's request, and self the
	// passive end of a connection with this rank itself. The Peer closes the endpoints.
	Up(ep, self fabric.Endpoint, theirs *Request)

	// Down reports that the connection was not made, or is lost, and why. It closes the
	// endpoint; posted requests complete as flushed.
	Down(why error)

	// RailMarks passes the memory of the marks of a rail, before its first RailUp: initiator.MarksSize
	// bytes, of which the peer may write the first 8. The Peer closes it after the connection.
	RailMarks(number int, mine fabric.Region)

	// RailUp reports that a rail is connected, and the peer's word for marks. It returns an
	// error if the connection or the endpoint has ended meanwhile; otherwise the Peer closes the
	// endpoint.
	RailUp(number int, ep fabric.Endpoint, theirs fabric.RemoteKey) error

	// RailDown closes the endpoint of a rail, if there is one, because of why.
	RailDown(number int, why error)

	// RailClosed reports that the peer has closed its endpoint of a rail as well, and the last
	// mark that was placed there. It returns an error if that cannot be.
	RailClosed(number int, mark uint64) error

	// RailIdle reports whether no request of a rail that both sides have closed is in flight.
	RailIdle(number int) bool

	// Idle reports whether no operation of a connection that is over is in flight.
	Idle() bool

	// Replan reports that the parameters of Links.Path have changed.
	Replan()

	// Forget releases the resources of a connection that is over.
	Forget()

	// Renew begins to use the next connection, which is being made.
	Renew(c *Connection)

	// Cause translates an error of the job to one of the engine.
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
	remake chan struct{} // closed when the old connection has been replaced; nil if none is being replaced
	next   *Request      // the peer's request for the next connection
	asked  int           // number of measurements that the peer has requested
}

// connection returns a Connection that has not begun to connect.
func (c *Connector) connection(number uint32) *Connection {
	n := &Connection{c: c, Number: number, theirs: make(chan Request, 1), ready: make(chan struct{}), done: make(chan struct{}), placed: make(chan struct{}), letters: make(chan []byte, maxLetters)}
	n.life, n.end = context.WithCancel(c.d.tasks.Life())
	n.openRails()
	return n
}

// Now returns the present connection, whether it is made or not.
func (c *Connector) Now() *Connection { return c.now.Load() }

// Call begins to connect, unless that has begun. It does not wait. Any goroutine may call
// it, the owner of the links included.
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
		defer c.d.spare()()
		n.connect(ctx)
	})
}

// Endpoint waits for the connection and returns its endpoint; it connects if necessary.
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

// HangUp cancels connecting. It reports whether that had begun.
func (c *Connector) HangUp(why error) bool {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	return c.now.Load().giveUp(why)
}

// Called reports whether the present connection has begun to connect.
func (c *Connector) Called() bool { return c.now.Load().begun.Load() }

// Told handles a value that the peer sends under a key of this package. The peer is not
// trusted: each key has an effect once per connection. Told returns false if the peer
// violates the protocol. It does not wait.
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
	case key == KeyReady:
		return n.toldReady(text)
	case key == KeyRail:
		return n.toldRail(text)
	case key == KeyResume:
		return n.toldLetter(text)
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

// requested handles the peer's request. Under Dialer.mu.
func (c *Connector) requested(val []byte) bool {
	n := c.now.Load()
	r, err := ParseRequest(val)
	switch {
	case err != nil:
		r = Request{Number: n.Number, wrong: err}
	case r.Link != c.number:
		r = Request{Number: r.Number, wrong: fmt.Errorf("%w: connection request over link %d, this side uses link %d", fabric.ErrBadAddress, r.Link, c.number)}
	}
	switch {
	case int32(r.Number-n.Number) > 0: // the peer replaces the connection
		c.next = &r
		c.renewLocked()
	case r.Number != n.Number:
		return true // of a connection that is over
	case n.requested:
		return false
	default:
		n.accept(r)
		if n.err != nil && n.mustRefuse() { // connecting has failed already
			c.d.tasks.Go(func() { n.Refuse(n.err) })
			return true
		}
		c.call()
	}
	return true
}

// Reset replaces lost, a connection that is down, unless that has been done, or lost is nil. It
// waits until the present one is made, and returns nil, or why there is none. One that was not made over
// the first link of a fabric.Fork is replaced by one over the second. If ctx ends first, connecting continues, and a further
// call waits for it. Reset does not wait for a connection that has not begun to connect:
// its first operation makes it.
func (c *Connector) Reset(ctx context.Context, lost *Connection) error {
	life := c.d.tasks.Life()
	for again := false; ; {
		c.d.mu.Lock()
		if lost == c.now.Load() { // it may have been replaced since the caller looked
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
			if errors.Is(n.err, ErrReset) {
				continue // the peer has replaced this connection before it was made
			}
			if errors.Is(n.err, fabric.ErrOtherWay) && !again {
				again, lost = true, n
				continue
			}
			return n.err
		case <-ctx.Done():
			return ctx.Err()
		case <-life.Done():
			return ErrClosed
		}
	}
}

// renewLocked begins to replace the connection, unless that has begun. Under Dialer.mu.
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

// bury ends the connection and all operations on it. It returns false if the engine is
// closed first.
func (c *Connector) bury(n *Connection) bool {
	life, prog := c.d.tasks.Life(), c.d.prog
	c.d.mu.Lock()
	n.over = true
	n.giveUp(errReplaced)
	c.d.mu.Unlock()
	if n.begun.Load() {
		select {
		case <-n.done: // soon, because of giveUp
		case <-life.Done():
			return false
		}
	}
	prog.Progress() // the link may know why the peer replaces it
	prog.Do(func() { c.peer.Down(errReplaced) })
	n.end()
	n.tasks.Wait() // the last of them may post operations, which then must end, too
	if !c.d.until(life, c.peer.Idle) {
		return false
	}
	for _, key := range n.published {
		_ = c.d.links.job.Take(key) // fails only if the server is gone, and the keys with it
	}
	return true
}

// until drives the links until idle, which the owner calls, returns true. It returns false if
// ctx ends first.
func (d *Dialer) until(ctx context.Context, idle func() bool) bool {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		done := false
		d.prog.Do(func() { done = idle() })
		if done {
			return true
		}
		d.prog.Progress()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}

// renew replaces a connection that is over by a new one. Owner's.
func (c *Connector) renew() {
	c.d.prog.AssertOwned()
	if c.d.tasks.Life().Err() != nil {
		return
	}
	c.peer.Forget()
	c.d.mu.Lock()
	old := c.now.Load()
	n := c.connection(old.Number + 1)
	n.second = errors.Is(old.err, fabric.ErrOtherWay)
	if c.next != nil {
		n.Number = c.next.Number
		n.accept(*c.next)
		c.next = nil
	}
	c.now.Store(n)
	remake := c.remake
	c.remake = nil
	c.call()
	c.d.mu.Unlock()
	close(remake) // waiting goroutines find that the new connection has begun
	c.peer.Renew(n)
}
