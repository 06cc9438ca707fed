package rmanet

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"

	"github.com/seed33544411/rma"
)

// forever is the context of waits that the engine bounds.
var forever = context.Background()

const (
	// direct is the size from which what is written goes out by itself: below, it
	// is put together with what is written next while something is on its way.
	direct = 16 << 10

	// collect is how much is put together.
	collect = 32 << 10

	// ahead is how many messages of a stream are under way at once.
	ahead = 4
)

// writing is the sending half. What is written is copied to blocks and handed to the
// engine in order by whoever has set busy.
type writing struct {
	ev      *rma.Event // set when there is something new to see
	handed  uint64     // bytes taken from Write
	limit   uint64     // how far this side may send
	flying  int        // blocks that the engine has
	busy    bool       // somebody is handing over
	out     queue      // full blocks that are to be handed over
	next    *block     // what small writes collect in
	shut    bool       // by CloseWrite
	fin     bool       // no more is written
	finSent bool
	unread  bool // the end is a reset: not all was read here
	stopped bool // the peer takes nothing any more
	lost    bool // something was written after that
	err     error
}

// Write copies p and has it on its way when it returns; p is the caller's again. It
// waits while the peer has Config.Window bytes that its reader has not taken, or
// Config.Memory bytes are on their way to it. Errors are those of Read; of writes to a
// peer that has closed the connection the first is lost, like one to a socket, and the
// next fails with syscall.EPIPE.
func (c *Conn) Write(p []byte) (int, error) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	release()
	n, err := c.write(p)
	return n, c.fail("write", err)
}

func (c *Conn) write(p []byte) (done int, err error) {
	w := &c.wr
	for {
		w.ev.Reset()
		c.mu.Lock()
		if err := c.writable(); err != nil {
			c.mu.Unlock()
			return done, err
		}
		left := p[done:]
		switch {
		case len(left) == 0:
			c.mu.Unlock()
			return done, nil
		case w.stopped:
			w.lost = true
			c.mu.Unlock()
			if done > 0 {
				return done, syscall.EPIPE
			}
			return len(p), nil
		}
		n := c.hand(left) // and c.mu is unlocked
		if done += n; n > 0 {
			continue
		}
		if err := w.ev.Wait((*until)(&c.wdl)); errors.Is(err, rma.ErrClosed) {
			c.s.n.gone(err)
		}
	}
}

// writable is why nothing can be written; nil if it can.
func (c *Conn) writable() error {
	w := &c.wr
	switch {
	case c.closed:
		return net.ErrClosed
	case c.wdl.over():
		return os.ErrDeadlineExceeded
	case w.err != nil:
		return w.err
	case w.shut, w.lost:
		return syscall.EPIPE
	}
	return nil
}

// hand takes over the first of p, as much as there is credit, memory and room on the
// way for, and unlocks. It returns how much: 0 if there is something to wait for.
func (c *Conn) hand(p []byte) int {
	w := &c.wr
	n := int(min(uint64(len(p)), w.limit-w.handed))
	if b := w.next; b != nil && (len(p) >= direct || b.room() == 0) {
		if w.flying+w.out.n >= ahead {
			n = 0
		} else {
			w.out.push(b)
			w.next = nil
		}
	}
	large := len(p) >= direct
	switch {
	case n == 0, large && w.flying+w.out.n >= ahead:
		c.pump()
		return 0
	case large:
		c.mu.Unlock()
		return c.handLarge(p[:min(n, c.s.n.cfg.Frame, cellSize)])
	}
	if w.next == nil {
		if w.next = c.s.lend(c, collect, newBlock); w.next == nil {
			c.pump()
			return 0
		}
	}
	n = min(n, w.next.room())
	w.next.buf = append(w.next.buf, p[:n]...)
	w.handed += uint64(n)
	c.pump()
	return n
}

// handLarge takes over all of p. It copies without the lock, which the engine takes.
func (c *Conn) handLarge(p []byte) int {
	w := &c.wr
	b := c.s.lend(c, len(p), newOut)
	if b != nil {
		b.buf = append(b.buf, p...)
		b.filled()
	}
	c.mu.Lock()
	switch {
	case b == nil:
		c.pump()
		return 0
	case w.err != nil, w.stopped, w.fin:
		c.mu.Unlock()
		c.s.settle(b)
		return 0
	}
	w.handed += uint64(len(p))
	w.out.push(b)
	c.pump()
	return len(p)
}

// pump hands to the engine what is due, in order, then the end, and unlocks. Only
// one goroutine does at a time: others leave what they have to it.
func (c *Conn) pump() {
	w := &c.wr
	if w.busy {
		c.mu.Unlock()
		return
	}
	w.busy = true
	for b := c.due(); b != nil; b = c.due() {
		w.flying++
		c.mu.Unlock()
		b.send()
		c.mu.Lock()
	}
	end := w.fin && !w.finSent && w.err == nil && w.next == nil && w.out.head == nil
	if end {
		w.finSent = true
		kind, n := byte(kindFin), w.handed
		if w.unread {
			kind, n = kindReset, resetUnread
		}
		c.mu.Unlock()
		c.control(kind, n)
		if kind == kindReset {
			c.s.remove(c)
		}
		c.mu.Lock()
	}
	w.busy = false
	c.mu.Unlock()
	if end {
		c.over()
	}
}

// due takes the next block that is to be handed over; nil if there is none. What
// nobody takes any more is dropped.
func (c *Conn) due() *block {
	w := &c.wr
	b := w.out.head
	switch {
	case w.err != nil || w.stopped:
		for b := w.out.head; b != nil; b = w.out.head {
			w.out.remove(b)
			c.drop(b)
		}
		if w.next != nil {
			c.drop(w.next)
			w.next = nil
		}
		return nil
	case b != nil:
		w.out.remove(b)
	case w.next != nil && (w.flying == 0 || w.fin):
		b, w.next = w.next, nil
	}
	return b
}

// drop gives back a block that the engine does not get: the end of the stream is
// before it.
func (c *Conn) drop(b *block) {
	c.wr.handed -= uint64(len(b.buf))
	c.s.settle(b)
}

// through is called by the engine when it has no use for the block any more.
func (b *block) through(err error) {
	c := b.c
	if err != nil {
		c.broken(err)
	}
	c.s.settle(b)
	c.mu.Lock()
	c.wr.flying--
	c.pump()
	c.wr.ev.Set()
}

// broken takes an error of sending: the peer is gone, or does not want more, which
// it is about to say.
func (c *Conn) broken(err error) {
	gone := errors.Is(err, rma.ErrPeerGone) || errors.Is(err, rma.ErrClosed) || c.s.why() != nil
	c.mu.Lock()
	switch w := &c.wr; {
	case !gone:
		w.stopped, w.lost = true, true
	case w.err == nil:
		w.err = connReset(err)
	}
	c.mu.Unlock()
}

// closeWrite ends the sending half behind what was written.
func (c *Conn) closeWrite() {
	c.mu.Lock()
	c.wr.fin = true
	c.pump()
	c.wr.ev.Set()
}
