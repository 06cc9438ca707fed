package rmanet

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/seed33544411/rma"
)

// Conn is a stream of bytes both ways between two ranks. It implements net.Conn
// and the half-closing of *net.TCPConn. Its methods may be called from any
// goroutine.
type Conn struct {
	s             *session
	num           uint32
	opener        bool // this side dialled
	local, remote Addr
	tag           uint32 // of data to the peer

	rmu, wmu sync.Mutex // one Read, one Write at a time; never taken by the engine
	rdl, wdl deadline
	rctx     until
	wctx     until
	cur      *chunk // what Read is at; guarded by rmu

	// What is below is guarded by mu, which nobody holds while calling the engine.
	mu     sync.Mutex
	closed bool
	state  state
	rd     reading
	wr     writing
}

// state of a connection's setting up.
type state uint8

const (
	dialling state = iota
	established
	refused
)

// reading is the receiving half.
type reading struct {
	ev       *rma.Event // set when there is something new to see
	q        queue
	came     uint64 // bytes that the peer has sent
	taken    uint64 // of them, those that Read has given away
	limit    uint64 // how far the peer may send
	fin      bool   // the peer sends no more
	stopped  bool   // nobody reads any more
	err      error
	claim    []byte // of a Read that waits: bytes may go there
	claimed  int    // that many have, or are about to
	torn     bool   // some of them did not arrive, and err says why
	arriving int    // messages on their way there
}

func newConn(s *session, num uint32, opener bool) *Conn {
	c := &Conn{s: s, num: num, opener: opener, rdl: newDeadline(), wdl: newDeadline()}
	c.tag = tagData | num
	if !opener {
		c.tag |= toOpener
	}
	c.rd.ev, c.wr.ev = s.n.eng.NewEvent(), s.n.eng.NewEvent()
	c.rd.limit = uint64(s.n.cfg.Window)
	c.wr.sent = c.onSent
	return c
}

// LocalAddr is an Addr.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr is an Addr.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// fail wraps an error as package net does.
func (c *Conn) fail(op string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return &net.OpError{Op: op, Net: Network, Source: c.local, Addr: c.remote, Err: err}
}

// Read reads what has come, and waits if nothing has. io.EOF says that the peer
// has closed its sending half; a peer that aborted, died or left without closing is
// syscall.ECONNRESET; os.ErrDeadlineExceeded and net.ErrClosed are what they always
// are. Bytes that a waiting Read has room for are put there without another copy.
func (c *Conn) Read(p []byte) (int, error) {
	c.rmu.Lock()
	defer c.rmu.Unlock()
	n, err := c.read(p)
	return n, c.fail("read", err)
}

func (c *Conn) read(p []byte) (int, error) {
	r := &c.rd
	for {
		c.rctx.ch = c.rdl.wait()
		r.ev.Reset()
		c.mu.Lock()
		if r.arriving > 0 {
			// The engine is filling p: that ends soon, whatever else has ended.
			c.mu.Unlock()
			if err := r.ev.Wait(forever); err != nil {
				return 0, engineError(err)
			}
			continue
		}
		r.claim = nil
		if n := r.claimed; n > 0 && !r.torn {
			r.claimed = 0
			c.took(n)
			return n, nil
		}
		k, err := c.readable(len(p))
		if k == nil && err == nil && r.q.head == nil {
			r.claim = p
		}
		c.mu.Unlock()
		switch {
		case err != nil || len(p) == 0:
			return 0, err
		case k != nil:
			n := copy(p, k.buf[k.off:])
			if k.off += n; k.off == len(k.buf) {
				k.free()
				k = nil
			}
			c.cur = k
			c.mu.Lock()
			c.took(n)
			return n, nil
		}
		// What this goroutine has made of what came last goes first: a wait spins, and
		// who was handed the result would stand behind it.
		runtime.Gosched()
		if err := r.ev.Wait(&c.rctx); errors.Is(err, rma.ErrClosed) {
			c.s.n.gone(err)
		}
	}
}

// readable is the chunk to read from, or why there will be none, or neither.
func (c *Conn) readable(want int) (*chunk, error) {
	r := &c.rd
	switch {
	case c.closed:
		return nil, net.ErrClosed
	case closed(c.rctx.ch):
		return nil, os.ErrDeadlineExceeded
	case want == 0:
		return nil, nil
	case r.stopped:
		return nil, io.EOF
	case r.torn: // what is behind the gap is of no use
		return nil, r.err
	case c.cur != nil:
		return c.cur, nil
	}
	if k := r.q.take(); k != nil {
		return k, nil
	}
	switch {
	case r.err != nil:
		return nil, r.err
	case r.fin && r.q.head == nil:
		return nil, io.EOF
	}
	return nil, nil
}

// took gives credit for n bytes that were read, and unlocks.
func (c *Conn) took(n int) {
	r := &c.rd
	r.taken += uint64(n)
	window := uint64(c.s.n.cfg.Window)
	grant := !r.fin && !r.stopped && r.err == nil && r.taken+window-r.limit >= window/2
	if grant {
		r.limit = r.taken + window
	}
	limit := r.limit
	c.mu.Unlock()
	if grant {
		c.control(kindCredit, limit)
	}
}

// control sends a control frame of this connection.
func (c *Conn) control(kind byte, n uint64) {
	c.s.send(frame{kind: kind, toOpener: !c.opener, num: c.num, n: n})
}

// Close closes both halves: what was written is still delivered, then the peer
// reads io.EOF; what it still writes fails there with syscall.EPIPE. Calls under
// way end with net.ErrClosed. Idempotent.
func (c *Conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	alive := c.rd.err == nil
	c.mu.Unlock()
	c.rdl.stop()
	c.wdl.stop()
	if alive {
		c.closeRead()
		c.closeWrite()
	}
	c.rd.ev.Set()
	c.wr.ev.Set()
	return nil
}

// CloseRead says that nobody reads any more: Read returns io.EOF, and writes of the
// peer fail with syscall.EPIPE.
func (c *Conn) CloseRead() error {
	c.mu.Lock()
	over := c.closed
	c.mu.Unlock()
	if over {
		return c.fail("close", net.ErrClosed)
	}
	c.closeRead()
	return nil
}

func (c *Conn) closeRead() {
	r := &c.rd
	c.mu.Lock()
	tell := !r.stopped && !r.fin && r.err == nil
	r.stopped = true
	r.q.clear()
	c.mu.Unlock()
	r.ev.Set()
	if tell {
		c.control(kindStop, 0)
	}
}

// CloseWrite ends the sending half: when the peer has read what was written, it
// reads io.EOF.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	over := c.closed
	c.mu.Unlock()
	if over {
		return c.fail("close", net.ErrClosed)
	}
	c.closeWrite()
	return nil
}

// Abort closes the connection and drops what was not delivered: the peer gets
// syscall.ECONNRESET.
func (c *Conn) Abort() error {
	c.mu.Lock()
	tell := !c.closed || c.s.has(c)
	c.closed = true
	c.mu.Unlock()
	if tell {
		c.reset(net.ErrClosed)
		c.control(kindReset, resetAborted)
	}
	return nil
}

// reset ends both halves with err, which calls under way and later ones return.
func (c *Conn) reset(err error) {
	c.mu.Lock()
	if c.rd.err == nil {
		c.rd.err = err
	}
	if c.wr.err == nil {
		c.wr.err = err
	}
	if c.state == dialling {
		c.state = refused
	}
	c.rd.q.clear()
	c.mu.Unlock()
	c.rd.ev.Set()
	c.wr.ev.Set()
	c.s.remove(c)
}

// over removes the connection from its session when both halves have ended.
func (c *Conn) over() {
	c.mu.Lock()
	over := c.rd.fin && c.wr.finSent
	c.mu.Unlock()
	if over {
		c.s.remove(c)
	}
}

// SetDeadline implements net.Conn. A Write that hands memory to the peer's engine,
// and a Read that is being given bytes by it, end when that is done, which
// takes no longer than Config.PeerTimeout of the engine, and return what they did.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(&c.rdl, c.rd.ev, t) }

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.wdl, c.wr.ev, t) }

func (c *Conn) setDeadline(d *deadline, ev *rma.Event, t time.Time) error {
	c.mu.Lock()
	over := c.closed
	c.mu.Unlock()
	if over {
		return c.fail("set", net.ErrClosed)
	}
	d.set(t)
	ev.Set() // who waits looks again: the channel it waits for may be another now
	return nil
}

// connReset is the error of a connection that ended because of why.
func connReset(why error) error { return fmt.Errorf("%w: %w", syscall.ECONNRESET, why) }

// engineError is the error of a wait that the engine ended.
func engineError(err error) error {
	if errors.Is(err, rma.ErrClosed) {
		return net.ErrClosed
	}
	return err
}
