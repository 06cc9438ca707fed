package rmanet

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/offheap"
)

// Conn is a bidirectional stream of bytes between two ranks. It implements net.Conn and the
// half-closing of *net.TCPConn, and behaves like a TCP connection except as the package
// comment says. Its methods may be called from any goroutine.
type Conn struct {
	s             *session
	num           uint32
	opener        bool // this side dialled
	local, remote Addr
	tag           uint32 // of data to the peer
	ending        bool   // closed here, and the peer has not ended the stream; guarded by s.mu

	rmu, wmu sync.Mutex // one Read, one Write at a time; never taken by the engine
	rdl, wdl deadline
	cur      atomic.Pointer[block] // the block that the last Read has left unfinished

	// mu guards the fields below. No goroutine holds it while calling the engine.
	mu     sync.Mutex
	closed bool
	state  state
	rd     reading
	wr     writing
}

// state is the state of a connection's set-up.
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
	taken    uint64 // bytes of them that Read has returned, or that were dropped
	limit    uint64 // offset up to which the peer may send
	granting bool   // a goroutine is sending credit
	fin      bool   // the peer has ended the stream
	stopped  bool   // by CloseRead or Close
	err      error  // why no bytes will follow those in the queue
	claim    []byte // memory of a waiting Read: bytes may be placed there
	claimed  int    // bytes of claim that are filled, or being filled, up to the first that did not arrive
	torn     bool   // some did not arrive; err is the reason
	arriving int    // messages that are being fetched to claim
}

func newConn(s *session, num uint32, opener bool) *Conn {
	c := &Conn{s: s, num: num, opener: opener}
	c.tag = tagData | num
	if !opener {
		c.tag |= toOpener
	}
	c.rd.ev, c.wr.ev = s.n.eng.NewEvent(), s.n.eng.NewEvent()
	c.rdl.ev, c.wdl.ev = c.rd.ev, c.wr.ev
	c.rd.limit = uint64(s.n.cfg.Window)
	return c
}

// LocalAddr returns an Addr.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns an Addr.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// fail wraps an error as package net does.
func (c *Conn) fail(op string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return &net.OpError{Op: op, Net: Network, Source: c.local, Addr: c.remote, Err: err}
}

// Read returns bytes that have arrived, and waits if there are none. The error is io.EOF if
// the peer has closed its sending half, and syscall.ECONNRESET, behind the data sent
// before, if the peer has aborted, died, or closed without having read everything;
// os.ErrDeadlineExceeded and net.ErrClosed have their usual meaning. Bytes that fit the
// buffer of a waiting Read are placed there without another copy, if the link can fetch
// them without the peer's process.
func (c *Conn) Read(p []byte) (int, error) {
	c.rmu.Lock()
	defer c.rmu.Unlock()
	n, err := c.read(p)
	if n > 0 {
		offheap.Acquire(p[:n])
	}
	return n, c.fail("read", err)
}

func (c *Conn) read(p []byte) (int, error) {
	r := &c.rd
	for {
		r.ev.Reset()
		c.mu.Lock()
		if r.arriving > 0 {
			// The engine is filling p without the peer's help: that ends soon, even if the
			// connection has ended.
			c.mu.Unlock()
			if err := r.ev.Wait(forever); err != nil {
				return 0, engineError(err)
			}
			continue
		}
		r.claim = nil
		if n := r.claimed; n > 0 {
			r.claimed = 0
			c.took(n)
			return n, nil
		}
		b, err := c.readable(len(p))
		if b == nil && err == nil && r.q.head == nil {
			r.claim = p
		}
		c.mu.Unlock()
		switch {
		case err != nil || len(p) == 0:
			return 0, err
		case b != nil:
			n := copy(p, b.buf[b.off:])
			b.off += n
			c.leave(b)
			c.mu.Lock()
			c.took(n)
			return n, nil
		}
		// Let the goroutines run that this one has woken: the wait spins, and would keep
		// them from the processor.
		runtime.Gosched()
		if err := r.ev.Wait((*until)(&c.rdl)); errors.Is(err, rma.ErrClosed) {
			c.s.n.gone(err)
		}
	}
}

// readable returns the block to read from, or why there will be none, or neither.
func (c *Conn) readable(want int) (*block, error) {
	r := &c.rd
	switch {
	case c.closed:
		return nil, net.ErrClosed
	case want == 0:
		return nil, nil
	case c.rdl.over():
		return nil, os.ErrDeadlineExceeded
	case r.stopped:
		return nil, io.EOF
	case r.torn: // the bytes behind the gap are useless
		return nil, r.err
	}
	if b := c.cur.Swap(nil); b != nil {
		return b, nil
	}
	if b := r.q.take(); b != nil {
		return b, nil
	}
	switch head := r.q.head; {
	case head != nil && !head.failed && !errors.Is(r.err, net.ErrClosed):
		return nil, nil // it is arriving
	case r.fin && head == nil:
		return nil, io.EOF
	}
	return nil, r.err
}

// leave keeps the rest of b for the next Read.
func (c *Conn) leave(b *block) {
	if b.off == len(b.buf) {
		c.s.give(b)
		return
	}
	c.cur.Store(b)
	c.mu.Lock()
	over := c.closed || c.rd.stopped
	c.mu.Unlock()
	if over {
		c.dropRest() // Close or CloseRead may have called dropRest before the Store
	}
}

// dropRest drops the block that Read has left unfinished.
func (c *Conn) dropRest() {
	if b := c.cur.Swap(nil); b != nil {
		n := len(b.buf) - b.off
		c.s.give(b)
		c.mu.Lock()
		c.took(n)
	}
}

// took grants credit for n bytes that were read or dropped, and unlocks. Each byte that has
// come is counted once, by the one who has taken it from the queue. Only one goroutine sends
// credit at a time, so that no offset follows a higher one: others leave theirs to it.
func (c *Conn) took(n int) {
	r := &c.rd
	r.taken += uint64(n)
	window := uint64(c.s.n.cfg.Window)
	for !r.granting && !r.fin && !c.closed && r.err == nil && r.taken+window-r.limit >= window/2 {
		limit := r.taken + window
		r.limit, r.granting = limit, true
		c.mu.Unlock()
		c.control(kindCredit, limit)
		c.mu.Lock()
		r.granting = false
	}
	c.mu.Unlock()
}

// control sends a control frame of this connection.
func (c *Conn) control(kind byte, n uint64) {
	c.s.send(frame{kind: kind, toOpener: !c.opener, num: c.num, n: n})
}

// Close closes both halves and does not wait: written data is still delivered, then the
// peer reads io.EOF, or syscall.ECONNRESET if not all of its data was read here. Data that
// the peer writes later is lost; its first such Write succeeds, the next one fails. Calls
// in progress end with net.ErrClosed, and so does a second Close. Before it exits, a
// process must call Engine.Close, which waits for written data.
func (c *Conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return c.fail("close", net.ErrClosed)
	}
	c.closed = true
	c.mu.Unlock()
	c.rdl.stop()
	c.wdl.stop()
	c.finish()
	return nil
}

// finish ends both halves of a connection that is closed here.
func (c *Conn) finish() {
	r, w := &c.rd, &c.wr
	c.mu.Lock()
	unread := r.came != r.taken && !r.stopped
	tell := !unread && !r.fin && r.err == nil
	r.stopped = true
	r.q.clear()
	w.unread = unread && r.err == nil
	late := w.unread && w.finSent
	c.mu.Unlock()
	c.dropRest()
	r.ev.Set()
	switch {
	case late:
		c.control(kindReset, resetUnread)
		c.s.remove(c)
	case tell:
		c.s.told(c)
		c.control(kindStop, 0)
	}
	c.closeWrite()
}

// CloseRead ends reading: Read returns io.EOF, and data from the peer is dropped without
// notifying it.
func (c *Conn) CloseRead() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return c.fail("close", net.ErrClosed)
	}
	r := &c.rd
	r.stopped = true
	c.took(r.q.clear())
	c.dropRest()
	r.ev.Set()
	return nil
}

// CloseWrite ends the sending half: when the peer has read the written data, it reads
// io.EOF.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return c.fail("close", net.ErrClosed)
	}
	c.wr.shut = true
	c.mu.Unlock()
	c.closeWrite()
	return nil
}

// Abort closes the connection and drops data that was not delivered: the peer gets
// syscall.ECONNRESET. After Close it ends the delivery that Close has left to the
// background.
func (c *Conn) Abort() error {
	c.mu.Lock()
	tell := !c.closed || c.s.has(c)
	c.closed = true
	c.mu.Unlock()
	c.rdl.stop()
	c.wdl.stop()
	c.dropRest()
	if tell {
		c.reset(net.ErrClosed)
		c.control(kindReset, resetAborted)
	}
	return nil
}

// reset ends both halves with err, which present and later calls return.
func (c *Conn) reset(err error) {
	c.mu.Lock()
	c.rd.q.clear()
	c.endLocked(err)
	c.mu.Unlock()
	c.ended()
}

// end is like reset, but keeps data that has arrived, which may still be read; a stream
// whose end has arrived still ends with io.EOF.
func (c *Conn) end(err error) {
	c.mu.Lock()
	c.endLocked(err)
	c.mu.Unlock()
	c.ended()
}

func (c *Conn) endLocked(err error) {
	if !c.rd.fin && c.rd.err == nil {
		c.rd.err = err
	}
	if c.wr.err == nil {
		c.wr.err = err
	}
	if c.state == dialling {
		c.state = refused
	}
}

// ended wakes waiting calls after both halves have ended.
func (c *Conn) ended() {
	c.rd.ev.Set()
	c.wr.ev.Set()
	c.s.remove(c)
	c.mu.Lock()
	c.pump() // which drops queued blocks
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

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error { return c.setDeadline(t, &c.rdl, &c.wdl) }

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(t, &c.rdl) }

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(t, &c.wdl) }

func (c *Conn) setDeadline(t time.Time, ds ...*deadline) error {
	c.mu.Lock()
	over := c.closed
	c.mu.Unlock()
	if over {
		return c.fail("set", net.ErrClosed)
	}
	for _, d := range ds {
		d.set(t)
	}
	return nil
}

// connReset returns the error of a connection that has ended because of why.
func connReset(why error) error { return fmt.Errorf("%w: %w", syscall.ECONNRESET, why) }

// engineError returns the error of a wait that the engine has ended.
func engineError(err error) error {
	if errors.Is(err, rma.ErrClosed) {
		return net.ErrClosed
	}
	return err
}
