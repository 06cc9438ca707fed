package rmanet

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"

	"github.com/seed33544411/rma"
)

// forever is the context of waits that the engine bounds.
var forever = context.Background()

const (
	// direct is the size from which a write is handed to the engine where it
	// lies, and Write waits until the peer has it: below, copying is cheaper
	// than waiting.
	direct = 16 << 10

	// collect bounds what small writes collect in while an earlier one is on
	// its way.
	collect = 32 << 10

	// ahead is how many frames of one large write are under way.
	ahead = 4
)

// writing is the sending half. Whoever has set busy hands messages in; small writes
// meanwhile collect in next, which goes out when that one is through.
type writing struct {
	ev      *rma.Event // set when there is something new to see
	handed  uint64     // bytes given to the engine, or collected
	limit   uint64     // how far this side may send
	busy    bool       // something is handed in and has not ended
	now     *buffer    // what is handed in, if small
	next    *buffer    // what has collected
	fin     bool       // no more is written
	finSent bool
	stopped bool // the peer does not read any more
	err     error
	sent    func(error) // onSent
}

// buffer is memory for small writes.
type buffer struct{ b []byte }

var buffers = sync.Pool{New: func() any { return &buffer{make([]byte, 0, collect)} }}

// Write sends p: small writes are copied and on their way when it returns, together
// with others where the link was busy; large ones are taken from p itself. It waits
// while the peer has Config.Window bytes that its reader has not taken. Errors are
// those of Read; a peer that does not read any more is syscall.EPIPE.
func (c *Conn) Write(p []byte) (int, error) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	n, err := c.write(p)
	return n, c.fail("write", err)
}

func (c *Conn) write(p []byte) (done int, err error) {
	w := &c.wr
	for first := true; done < len(p) || first; first = false {
		c.wctx.ch = c.wdl.wait()
		w.ev.Reset()
		c.mu.Lock()
		if err := c.writable(); err != nil {
			c.mu.Unlock()
			return done, err
		}
		left := p[done:]
		n := int(min(uint64(len(left)), w.limit-w.handed))
		switch {
		case len(left) == 0:
			c.mu.Unlock()
		case n > 0 && len(left) >= direct && !w.busy:
			w.busy = true
			c.mu.Unlock()
			n, err = c.writeDirect(left)
			done += n
			if err != nil {
				return done, err
			}
		case n > 0 && len(left) < direct && c.collects(left[:n], &n):
			done += n // and c.mu is unlocked
		default:
			c.mu.Unlock()
			if err := w.ev.Wait(&c.wctx); errors.Is(err, rma.ErrClosed) {
				c.s.n.gone(err)
			}
		}
	}
	return done, nil
}

// writable is why nothing can be written; nil if it can.
func (c *Conn) writable() error {
	switch {
	case c.closed:
		return net.ErrClosed
	case closed(c.wctx.ch):
		return os.ErrDeadlineExceeded
	case c.wr.err != nil:
		return c.wr.err
	case c.wr.stopped, c.wr.fin:
		return syscall.EPIPE
	}
	return nil
}

// collects takes the first of p, and says in n how much; then it has unlocked. It
// returns false if there is no room.
func (c *Conn) collects(p []byte, n *int) bool {
	w := &c.wr
	if w.next == nil {
		w.next = buffers.Get().(*buffer)
	}
	room := cap(w.next.b) - len(w.next.b)
	if room == 0 {
		return false
	}
	*n = min(len(p), room)
	w.next.b = append(w.next.b, p[:*n]...)
	w.handed += uint64(*n)
	if w.busy {
		c.mu.Unlock()
		return true
	}
	w.busy = true
	c.goOn()
	return true
}

// writeDirect hands p to the engine frame by frame, as far as there is credit, and
// waits until it is p's owner again. The caller has set busy.
func (c *Conn) writeDirect(p []byte) (done int, err error) {
	w := &c.wr
	var reqs [ahead]rma.Request
	var sizes [ahead]int
	first, flying, off := 0, 0, 0
	for {
		c.mu.Lock()
		n := int(min(uint64(len(p)-off), w.limit-w.handed, uint64(c.s.n.cfg.Frame)))
		if flying == ahead || err != nil || w.err != nil || w.stopped || c.closed {
			n = 0
		}
		w.handed += uint64(n)
		c.mu.Unlock()
		if n > 0 {
			at := (first + flying) % ahead
			reqs[at], sizes[at] = c.s.peer.SendTag(c.tag, p[off:off+n:off+n]), n
			flying++
			off += n
			continue
		}
		if flying == 0 {
			break
		}
		if why := reqs[first].Wait(forever); why != nil && err == nil {
			err = why
		} else if err == nil {
			done += sizes[first]
		}
		first, flying = (first+1)%ahead, flying-1
	}
	if err != nil {
		c.broken(err)
		c.mu.Lock()
		err = c.writable()
		c.mu.Unlock()
	}
	c.mu.Lock()
	c.goOn()
	return done, err
}

// onSent is called by the engine when what was handed in is through.
func (c *Conn) onSent(err error) {
	if err != nil {
		c.broken(err)
	}
	c.mu.Lock()
	c.goOn()
}

// broken takes an error of sending: the peer is gone, or its reader does not want
// more, which it is about to say.
func (c *Conn) broken(err error) {
	gone := errors.Is(err, rma.ErrPeerGone) || errors.Is(err, rma.ErrClosed) || c.s.why() != nil
	c.mu.Lock()
	switch {
	case !gone:
		c.wr.stopped = true
	case c.wr.err == nil:
		c.wr.err = connReset(err)
	}
	c.mu.Unlock()
}

// goOn hands in what has collected while busy was set, or gives busy up; then it
// unlocks.
func (c *Conn) goOn() {
	w := &c.wr
	if b := w.now; b != nil {
		b.b = b.b[:0]
		buffers.Put(b)
		w.now = nil
	}
	fin := false
	b := w.next
	switch {
	case w.err != nil || w.stopped:
		w.busy = false
		if b != nil {
			w.handed -= uint64(len(b.b)) // the end of the stream is before it
			b.b = b.b[:0]
			buffers.Put(b)
		}
		w.now, w.next, b = nil, nil, nil
		fin = w.err == nil && w.fin && !w.finSent
	case b != nil && len(b.b) > 0:
		w.now, w.next = b, nil
	default:
		b, w.busy = nil, false
		fin = w.fin && !w.finSent
	}
	if fin {
		w.finSent = true
	}
	end := w.handed
	c.mu.Unlock()
	w.ev.Set()
	if b != nil {
		c.s.peer.SendFunc(c.tag, b.b, w.sent)
	}
	if fin {
		c.control(kindFin, end)
		c.over()
	}
}

func (c *Conn) closeWrite() {
	w := &c.wr
	c.mu.Lock()
	if w.fin || w.err != nil {
		c.mu.Unlock()
		return
	}
	w.fin = true
	if w.busy {
		c.mu.Unlock()
		w.ev.Set()
		return
	}
	w.busy = true
	c.goOn()
}
