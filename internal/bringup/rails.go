package bringup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/links"
)

// KeyRail is the key of the values that two ranks send each other about a rail of their
// connection: the number of the connection (4), the number of the rail, from 1 (1), and the
// address of an endpoint, or nothing: the sender's endpoint is closed (docs/wire.md).
const KeyRail = "ep/rail"

const (
	// maxRail is the largest number of a rail.
	maxRail = 3

	// railPause is the least time from the begin of an attempt that connected a rail to that of
	// the next one, after the rail was lost.
	railPause = 200 * time.Millisecond

	// retryPause is the time from the end of an attempt that failed to the next one. It doubles
	// with each further one that fails, up to maxRetryPause.
	retryPause, maxRetryPause = 50 * time.Millisecond, 10 * time.Second
)

// railConn is an attempt to connect a rail, and the connection if it succeeds. It belongs to a
// Connection. When both sides have closed a rail that both have, the lower rank calls again:
// its next address begins an attempt on both sides.
type railConn struct {
	Rail
	n      *Connection
	theirs chan []byte   // the address of the peer's endpoint, once
	closed chan struct{} // closed when the peer has closed its endpoint
	joined chan struct{} // closed when connecting has succeeded or failed
	join   context.Context
	giveUp context.CancelFunc

	up    bool          // it was connected; set before joined is closed
	said  bool          // the peer was told an address, so that it takes part; set before joined is closed
	known bool          // the peer has this rail: it has told an address in an earlier attempt
	began time.Time     // when the attempt began; set before joined is closed
	pause time.Duration // before the next attempt, if this one fails

	// Dialer.mu guards these.
	named, over, ending bool
	idle                bool   // it is over, and nothing of it is in flight, on the side that is called
	next                []byte // the peer's address for the next attempt
	nextOver            bool   // which the peer has closed already
}

var (
	errRailClosed = errors.New("the peer has closed its side")
	errRailStays  = errors.New("the peer does not close its side of a rail that has failed")
)

// openRails prepares the rails of the connection.
func (n *Connection) openRails() {
	for _, r := range n.c.d.links.Rails(n.c.rank) {
		n.rails = append(n.rails, n.attempt(r))
	}
}

// attempt returns an attempt that has not begun.
func (n *Connection) attempt(r Rail) *railConn {
	x := &railConn{Rail: r, n: n, pause: retryPause, theirs: make(chan []byte, 1), closed: make(chan struct{}), joined: make(chan struct{})}
	x.join, x.giveUp = context.WithCancel(n.life)
	return x
}

// connect connects the rail, after the connection. A rail that fails costs bandwidth only.
func (r *railConn) connect() {
	n := r.n
	d, l := n.c.d, n.c.d.links
	ctx := r.join
	r.began = time.Now()
	if l.SetupTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, l.SetupTimeout)
		defer cancel()
	}
	ep, err := links.Join(ctx, l.open[r.Index], links.ConnectOptions{
		EndpointOptions: fabric.EndpointOptions{ID: n.ID(), Depth: l.Depth, PeerTimeout: l.PeerTimeout},
		Own:             d.prog.Do,
	}, func(mine []byte) ([]byte, error) {
		r.said = true // if tell fails, it may have been told nevertheless
		if err := r.tell(ctx, mine); err != nil {
			return nil, err
		}
		select {
		case theirs := <-r.theirs:
			return theirs, nil
		case <-r.closed:
			return nil, errRailClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	if err == nil {
		d.prog.Do(func() {
			if err = n.c.peer.RailUp(r.Number, ep); err != nil {
				ep.Close()
			}
		})
	}
	r.up = err == nil
	close(r.joined)
	if err == nil {
		if r.known {
			l.Log.Info("rma: rail connected again", "rank", n.c.rank, "rail", r.Where)
		}
		d.prog.Kick()
		return
	}
	r.end(err)
}

// tell sends the peer the address of this side's endpoint, or nothing.
func (r *railConn) tell(ctx context.Context, address []byte) error {
	n := r.n
	val := append(append(n.Numbered(), byte(r.Number)), address...)
	return n.c.d.links.job.Send(ctx, n.c.rank, KeyRail, val)
}

// end closes the rail on both sides, once. It does not wait.
func (r *railConn) end(why error) {
	d := r.n.c.d
	d.mu.Lock()
	again := r.ending
	r.ending = true
	d.mu.Unlock()
	if !again {
		r.n.Go(func() { r.agree(why) })
	}
}

// agree closes this side's endpoint, tells the peer, and waits until the peer has closed its
// own: only then nothing that was in flight is placed any more, and what was lost may be
// sent again. A peer that does not answer loses the connection if the rail was connected;
// otherwise nothing was sent, and the rail stays down until the peer answers.
func (r *railConn) agree(why error) {
	n := r.n
	d, l, life := n.c.d, n.c.d.links, n.life
	r.giveUp()
	select {
	case <-r.joined:
	case <-life.Done():
		return
	}
	d.prog.Do(func() { n.c.peer.RailDown(r.Number, why) })
	switch {
	case r.up:
		l.Log.Warn("rma: rail lost", "rank", n.c.rank, "rail", r.Where, "err", why)
	case r.known:
		l.Log.Debug("rma: rail not connected again", "rank", n.c.rank, "rail", r.Where, "err", why)
	default:
		l.Log.Warn("rma: rail not connected", "rank", n.c.rank, "rail", r.Where, "err", why)
	}
	if r.known && n.calls() && !r.said { // the peer knows nothing of this attempt
		r.again()
		return
	}
	fail := func(err error) {
		d.prog.Do(func() {
			if n.c.now.Load() == n {
				n.c.peer.Down(n.c.peer.Cause(err))
			}
		})
	}
	if err := r.tell(life, nil); err != nil {
		if life.Err() == nil && r.up {
			fail(fmt.Errorf("%w: %w", ErrNoConnection, err))
		}
		return
	}
	var late <-chan time.Time
	if r.up && l.SetupTimeout > 0 {
		t := time.NewTimer(l.SetupTimeout)
		defer t.Stop()
		late = t.C
	}
	select {
	case <-r.closed:
		d.prog.Do(func() { n.c.peer.RailClosed(r.Number) })
		d.prog.Kick()
		r.again()
	case <-life.Done():
	case <-late:
		fail(fmt.Errorf("%w: %w", ErrNoConnection, errRailStays))
	}
}

// again begins the next attempt when nothing of this one is in flight, so that what arrives
// later belongs to the next one: on the lower rank after a pause, at once if the rail was
// connected for as long, on the other one when the peer calls. A rail of which the peer has
// never told an address is not tried again: the peer may lack it.
func (r *railConn) again() {
	n := r.n
	d := n.c.d
	if !d.until(n.life, func() bool { return n.c.peer.RailIdle(r.Number) }) {
		return
	}
	if n.calls() {
		d.mu.Lock()
		lacks := !r.known && !r.named
		d.mu.Unlock()
		if lacks {
			return
		}
		pause := r.pause
		if r.up {
			pause = railPause - time.Since(r.began)
		}
		t := time.NewTimer(pause)
		defer t.Stop()
		select {
		case <-t.C:
		case <-n.life.Done():
			return
		}
	}
	var x *railConn
	d.mu.Lock()
	if r.idle = true; n.calls() || r.next != nil {
		x = r.succeed()
	}
	over := x != nil && x.over
	d.mu.Unlock()
	switch {
	case x == nil:
	case over: // the peer has given it up before this side began
		close(x.joined)
		x.end(errRailClosed)
	default:
		n.Go(x.connect)
	}
}

// calls reports whether this side calls again when a rail was lost.
func (n *Connection) calls() bool { return n.c.d.links.job.Rank() < n.c.rank }

// succeed replaces r by the next attempt and returns that. Under Dialer.mu.
func (r *railConn) succeed() *railConn {
	n := r.n
	x := n.attempt(r.Rail)
	if x.known = r.known || r.named; !r.up {
		x.pause = min(2*r.pause, maxRetryPause)
	}
	if r.next != nil {
		x.named = true
		x.theirs <- r.next
	}
	if r.nextOver {
		x.over = true
		close(x.closed)
	}
	for i := range n.rails {
		if n.rails[i] == r {
			n.rails[i] = x
		}
	}
	return x
}

// RailLost ends a rail that has failed. Owner's; it does not wait.
func (n *Connection) RailLost(number int, why error) {
	n.c.d.mu.Lock()
	i := slices.IndexFunc(n.rails, func(r *railConn) bool { return r.Number == number })
	var r *railConn
	if i >= 0 {
		r = n.rails[i]
	}
	n.c.d.mu.Unlock()
	if r != nil {
		r.end(why)
	}
}

// toldRail handles the peer's value about a rail. It returns false if the peer violates the
// protocol. Under Dialer.mu.
func (n *Connection) toldRail(val []byte) bool {
	if len(val) == 0 || val[0] == 0 || val[0] > maxRail || n.c.own {
		return false
	}
	for _, r := range n.rails {
		if r.Number == int(val[0]) {
			return r.told(val[1:])
		}
	}
	bit := uint8(1) << val[0]
	if n.lacking&bit != 0 {
		return len(val) == 1
	}
	n.lacking |= bit
	if len(val) > 1 { // a rail that this side does not have
		r := &railConn{Rail: Rail{Number: int(val[0])}, n: n}
		n.c.d.tasks.Go(func() { n.Go(func() { _ = r.tell(n.life, nil) }) })
	}
	return true
}

// told handles the peer's value. Under Dialer.mu.
func (r *railConn) told(address []byte) bool {
	switch {
	case r.over && !r.n.calls() && len(address) > 0 && r.next == nil:
		if r.next = slices.Clone(address); r.idle {
			x := r.succeed()
			r.n.c.d.tasks.Go(func() { r.n.Go(x.connect) })
		}
	case r.over && r.next != nil && len(address) == 0 && !r.nextOver:
		r.nextOver = true
	case r.over || r.named && len(address) > 0:
		return false
	case len(address) > 0:
		r.named = true
		r.theirs <- address
	default:
		r.over = true
		close(r.closed)
		r.n.c.d.tasks.Go(func() { r.end(errRailClosed) })
	}
	return true
}
