package rmanet

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/offheap"
)

// forever is the context of waits that are bounded by the engine.
var forever = context.Background()

const (
	// direct is the size from which a write is sent by itself. Smaller writes are combined
	// with the following ones while a message is in flight.
	direct = 16 << 10

	// collect bounds the bytes that are combined.
	collect = 32 << 10

	// ahead is the number of messages of a stream that may be in flight.
	ahead = 4
)

// writing is the sending half. Written data is copied to blocks; the goroutine that has set
// busy passes them to the engine in order.
type writing struct {
	ev       *rma.Event // set when a waiting Write has to check again
	handed   uint64     // bytes taken from Write
	limit    uint64     // offset up to which this side may send
	inFlight int        // blocks that the engine is sending
	busy     bool       // a goroutine is passing blocks to the engine
	out      queue      // full blocks to pass to the engine
	next     *block     // collects small writes
	shut     bool       // by CloseWrite
	fin      bool       // the stream ends behind the blocks present
	finSent  bool
	unread   bool // the end is a reset: not all was read here
	refused  bool // the peer has refused data: its frame that says why is under way
	stopped  bool // the peer has closed the connection
	lost     bool // data written after that was dropped
	err      error
}

// Write copies p: the caller may reuse p when Write returns, and the copy is sent without a
// further call. It waits while the peer holds Config.Window bytes that its reader has not
// taken, or while Config.Memory bytes are in flight to the peer. Errors are those of Read;
// after the peer has closed the connection, the first Write is lost, like one to a socket,
// and the next fails with syscall.EPIPE.
func (c *Conn) Write(p []byte) (int, error) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	offheap.Release()
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
		case w.refused:
			c.mu.Unlock()
		default:
			n := c.hand(left) // unlocks c.mu
			if done += n; n > 0 {
				continue
			}
		}
		if err := w.ev.Wait((*until)(&c.wdl)); errors.Is(err, rma.ErrClosed) {
			c.s.n.gone(err)
		}
	}
}

// writable returns nil if data can be written, else the reason why not.
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

// hand copies as much from the front of p as credit, memory and the number of messages in
// flight allow, and unlocks. It returns the number of bytes: 0 if the caller has to wait.
func (c *Conn) hand(p []byte) int {
	w := &c.wr
	n := int(min(uint64(len(p)), w.limit-w.handed))
	if b := w.next; b != nil && (len(p) >= direct || b.room() == 0) {
		if w.inFlight+w.out.n >= ahead {
			n = 0
		} else {
			w.out.push(b)
			w.next = nil
		}
	}
	large := len(p) >= direct
	switch {
	case n == 0, large && w.inFlight+w.out.n >= ahead:
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

// handLarge copies all of p, without holding the lock, which the engine takes.
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
	case w.err != nil, w.refused, w.stopped, w.fin:
		c.mu.Unlock()
		c.s.settle(b)
		return 0
	}
	w.handed += uint64(len(p))
	w.out.push(b)
	c.pump()
	return len(p)
}

// pump passes blocks that are due to the engine, in order, then the end of the stream, and
// unlocks. Only one goroutine does so at a time: others leave their blocks to it.
func (c *Conn) pump() {
	w := &c.wr
	if w.busy {
		c.mu.Unlock()
		return
	}
	w.busy = true
	for b := c.due(); b != nil; b = c.due() {
		w.inFlight++
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

// due returns the next block to pass to the engine; nil if there is none. It drops all
// blocks if the peer takes none any more.
func (c *Conn) due() *block {
	w := &c.wr
	b := w.out.head
	switch {
	case w.err != nil || w.refused || w.stopped:
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
	case w.next != nil && (w.inFlight == 0 || w.fin):
		b, w.next = w.next, nil
	}
	return b
}

// drop releases a block that is not sent: the stream ends before it.
func (c *Conn) drop(b *block) {
	c.wr.handed -= uint64(len(b.buf))
	c.s.settle(b)
}

// through is called by the engine when the block may be reused.
func (b *block) through(err error) {
	c := b.c
	if err != nil {
		c.broken(err)
	}
	c.s.settle(b)
	c.mu.Lock()
	c.wr.inFlight--
	c.pump()
	c.wr.ev.Set()
}

// broken handles an error of sending. If the peer refuses data, it has closed this
// connection, and the frame that tells whether that was a close or a reset follows; until
// then writers wait. Any other error means that the connection with the peer is lost.
func (c *Conn) broken(err error) {
	closed := errors.Is(err, rma.ErrUnwanted) && c.s.why() == nil
	c.mu.Lock()
	switch w := &c.wr; {
	case closed:
		w.refused = true
		w.lost = w.stopped
	case w.err == nil:
		w.err = connReset(err)
	}
	c.mu.Unlock()
}

// closeWrite ends the sending half behind the data written so far.
func (c *Conn) closeWrite() {
	c.mu.Lock()
	c.wr.fin = true
	c.pump()
	c.wr.ev.Set()
}
