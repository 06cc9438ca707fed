package bringup

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/initiator"
	"github.com/seed33544411/rma/internal/links"
)

// KeyRail is the key of the values that two ranks send each other about a rail of their
// connection: the number of the connection (4) and a RailValue.
const KeyRail = "ep/rail"

const (
	// maxRail is the largest number of a rail.
	maxRail = 3

	// railPause is the least time from the begin of an attempt that connected a rail to that of
	// the next one, after the rail was lost.
	railPause = 200 * time.Millisecond

	// See retryAfter.
	retryPause, usualPause, maxRetryPause = 50 * time.Millisecond, 500 * time.Millisecond, 10 * time.Second
)

// railConn is an attempt to connect a rail, and the connection if it succeeds. It belongs to a
// Connection. When both sides have closed a rail that both have, the lower rank calls again:
// its next address begins an attempt on both sides.
type railConn struct {
	Rail
	n      *Connection
	theirs chan RailValue // the address of the peer's endpoint, once
	ready  chan struct{}  // closed when the peer's endpoint is connected
	closed chan struct{}  // closed when the peer has closed its endpoint
	mark   uint64         // the last that the peer had then
	joined chan struct{}  // closed when connecting has succeeded or failed
	join   context.Context
	giveUp context.CancelFunc

	marks fabric.Region   // of all attempts, and of the Peer; nil before the first; set before joined is closed
	up    bool            // it was connected; set before joined is closed
	said  bool            // the peer was told an address, so that it takes part; set before joined is closed
	known bool            // the peer has this rail: it has told an address in an earlier attempt
	began time.Time       // when the attempt began; set before joined is closed
	down  time.Time       // when the rail was lost, or its first attempt began
	moves <-chan struct{} // closed when a network has come up since it began; nil if the link cannot tell

	// Dialer.mu guards these.
	named, connected, over, ending bool       // the peer has told its address, that it is connected, that it is closed; this side is ending it
	idle                           bool       // it is over, and nothing of it is in flight, on the side that is called
	next                           *RailValue // the peer's address for the next attempt
	nextOver                       bool       // which the peer has closed already
}

var (
	errRailClosed = errors.New("the peer has closed its side")
	errRailStays  = errors.New("the peer does not close its side of a rail that has failed")
)

func railClosed() error { return errRailClosed }

// openRails prepares the rails of the connection.
func (n *Connection) openRails() {
	for _, r := range n.c.d.links.Rails(n.c.rank) {
		n.rails = append(n.rails, n.attempt(r))
	}
}

// attempt returns an attempt that has not begun.
func (n *Connection) attempt(r Rail) *railConn {
	x := &railConn{Rail: r, n: n, down: time.Now(), theirs: make(chan RailValue, 1), ready: make(chan struct{}), closed: make(chan struct{}), joined: make(chan struct{})}
	x.join, x.giveUp = context.WithCancel(n.life)
	return x
}

// connect connects the rail, after the connection. A rail that fails costs bandwidth only.
func (r *railConn) connect() {
	n := r.n
	d, l := n.c.d, n.c.d.links
	ctx := r.join
	r.began = time.Now()
	if w, ok := l.open[r.Index].(fabric.Networked); ok {
		r.moves = w.NetworkUp()
	}
	if l.SetupTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, l.SetupTimeout)
		defer cancel()
	}
	theirs := RailValue{}
	ep, err := links.Join(ctx, l.open[r.Index], links.ConnectOptions{
		// One that was lost may seem to be connected while packets vanish: the operations that it got would wait.
		EndpointOptions: fabric.EndpointOptions{ID: n.ID(), Depth: l.Depth, PeerTimeout: l.PeerTimeout, Prove: r.known},
		Own:             d.prog.Do,
	}, func(mine []byte) (_ []byte, err error) {
		if err = r.usable(); err != nil {
			return nil, err
		}
		if err = r.alloc(); err != nil {
			return nil, err
		}
		r.said = true // if tell fails, it may have been told nevertheless
		if err = r.tell(ctx, RailValue{Address: mine, Word: r.marks.Key()}); err != nil {
			return nil, err
		}
		theirs, err = hear(ctx, r.theirs, r.closed, railClosed)
		return theirs.Address, err
	}, func() error {
		if err := r.tell(ctx, RailValue{Ready: true}); err != nil {
			return err
		}
		_, err := hear(ctx, r.ready, r.closed, railClosed)
		return err
	})
	if err == nil {
		d.prog.Do(func() {
			if err = n.c.peer.RailUp(r.Number, ep, theirs.Word); err != nil {
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

// usable returns why a rail that was lost cannot be connected at present, as far as this side knows alone.
func (r *railConn) usable() error {
	if f, is := r.n.c.d.links.open[r.Index].(fabric.Fallible); is && r.known {
		return f.Usable()
	}
	return nil
}

// alloc makes the memory for marks, once.
func (r *railConn) alloc() (err error) {
	d := r.n.c.d
	if r.marks == nil {
		if r.marks, err = d.links.open[r.Index].Alloc(initiator.MarksSize, fabric.AccessLocalWrite|fabric.AccessRemoteWrite); err != nil {
			return err
		}
		d.prog.Do(func() { r.n.c.peer.RailMarks(r.Number, r.marks) })
	}
	return nil
}

// takeMark returns the last mark that the peer has placed, and clears it for the next attempt.
// The endpoint of this side is closed.
func (r *railConn) takeMark() uint64 {
	if r.marks == nil {
		return 0
	}
	b := r.marks.Bytes()[:initiator.MarkSize]
	defer clear(b)
	return binary.LittleEndian.Uint64(b)
}

// tell sends the peer the address of this side's endpoint, that it is connected, or that it is closed.
func (r *railConn) tell(ctx context.Context, v RailValue) error {
	n := r.n
	v.Number = r.Number
	return n.c.d.links.job.Send(ctx, n.c.rank, KeyRail, v.Append(n.Numbered()))
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
	mark := uint64(0)
	d.prog.Do(func() {
		n.c.peer.RailDown(r.Number, why)
		mark = r.takeMark()
	})
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
	if err := r.tell(life, RailValue{Mark: mark}); err != nil {
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
		var err error
		d.prog.Do(func() { err = n.c.peer.RailClosed(r.Number, r.mark) })
		if d.prog.Kick(); err != nil {
			fail(err)
			return
		}
		r.again()
	case <-life.Done():
	case <-late:
		fail(fmt.Errorf("%w: %w", ErrNoConnection, errRailStays))
	}
}

// again begins the next attempt when nothing of this one is in flight, so that what arrives
// later belongs to the next one: on the lower rank after a pause, at once if the rail was
// connected for as long or a network has come up, on the other one when the peer calls. A rail of which the peer has
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
		pause := retryAfter(time.Since(r.down))
		if r.up {
			pause = railPause - time.Since(r.began)
		}
		t := time.NewTimer(pause)
		defer t.Stop()
		select {
		case <-t.C:
		case <-r.moves:
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

// retryAfter returns the pause between the end of an attempt that failed and the next one, so long after the rail was
// lost: a quarter of that, up to half a second, from half a minute on a 64th. So much later than it could be, and
// than an attempt takes, the rail is back.
func retryAfter(lost time.Duration) time.Duration {
	return min(max(retryPause, min(lost/4, usualPause), lost/64), maxRetryPause)
}

// calls reports whether this side calls again when a rail was lost.
func (n *Connection) calls() bool { return n.c.d.links.job.Rank() < n.c.rank }

// succeed replaces r by the next attempt and returns that. Under Dialer.mu.
func (r *railConn) succeed() *railConn {
	n := r.n
	x := n.attempt(r.Rail)
	x.marks = r.marks
	if x.known = r.known || r.named; !r.up {
		x.down = r.down
	}
	if r.next != nil {
		x.named = true
		x.theirs <- *r.next
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
	v, err := ParseRailValue(val)
	if err != nil || n.c.own {
		return false
	}
	for _, r := range n.rails {
		if r.Number == v.Number {
			return r.told(v)
		}
	}
	bit := uint8(1) << v.Number
	if n.lacking&bit != 0 || v.Ready {
		return !v.Ready && len(v.Address) == 0
	}
	n.lacking |= bit
	if len(v.Address) > 0 { // a rail that this side does not have
		r := &railConn{Rail: Rail{Number: v.Number}, n: n}
		n.c.d.tasks.Go(func() { n.Go(func() { _ = r.tell(n.life, RailValue{}) }) })
	}
	return true
}

// told handles the peer's value. Under Dialer.mu.
func (r *railConn) told(v RailValue) bool {
	opens := len(v.Address) > 0
	v.Address = slices.Clone(v.Address)
	switch {
	case v.Ready:
		if r.over || !r.named || r.connected {
			return false
		}
		r.connected = true
		close(r.ready)
	case r.over && !r.n.calls() && opens && r.next == nil:
		if r.next = &v; r.idle {
			x := r.succeed()
			r.n.c.d.tasks.Go(func() { r.n.Go(x.connect) })
		}
	case r.over && r.next != nil && !opens && v.Mark == 0 && !r.nextOver: // nothing was placed on it
		r.nextOver = true
	case r.over || r.named && opens:
		return false
	case opens:
		r.named = true
		r.theirs <- v
	default:
		r.over, r.mark = true, v.Mark
		close(r.closed)
		r.n.c.d.tasks.Go(func() { r.end(errRailClosed) })
	}
	return true
}
