package rmanet

import (
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/seed33544411/rma"
)

// Listener accepts connections to one service of this rank. It implements
// net.Listener, and the deadlines of *net.TCPListener.
type Listener struct {
	n    *Net
	addr Addr
	come chan *Conn
	dl   deadline
	once sync.Once
	done chan struct{}
}

// Listen offers a service, for example "8080", to all ranks. One listener has a
// name at a time: syscall.EADDRINUSE.
func Listen(eng *rma.Engine, service string) (net.Listener, error) { return Of(eng).Listen(service) }

// Listen is the function of that name.
func (n *Net) Listen(service string) (*Listener, error) {
	l := &Listener{
		n: n, addr: Addr{n.eng.Rank(), service}, come: make(chan *Conn, n.cfg.Backlog),
		dl: newDeadline(), done: make(chan struct{}),
	}
	err := checkService(service)
	if err == nil {
		n.mu.Lock()
		switch {
		case n.err != nil:
			err = n.err
		case n.listeners[service] != nil:
			err = syscall.EADDRINUSE
		default:
			n.listeners[service] = l
		}
		n.mu.Unlock()
	}
	if err == nil && n.run() != nil {
		err = net.ErrClosed
	}
	if err != nil {
		return nil, l.fail("listen", err)
	}
	return l, nil
}

func (l *Listener) fail(op string, err error) error {
	return &net.OpError{Op: op, Net: Network, Addr: l.addr, Err: err}
}

// Accept implements net.Listener. After Close its error is net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		ch := l.dl.wait()
		switch {
		case closed(l.done):
			return nil, l.fail("accept", net.ErrClosed)
		case closed(ch):
			return nil, l.fail("accept", os.ErrDeadlineExceeded)
		}
		select {
		case c := <-l.come:
			return c, nil
		case <-l.done:
		case <-ch:
		}
	}
}

// SetDeadline bounds Accept.
func (l *Listener) SetDeadline(t time.Time) error {
	l.dl.set(t)
	return nil
}

// Addr is an Addr.
func (l *Listener) Addr() net.Addr { return l.addr }

// Close ends listening; connections that wait to be accepted are reset. Idempotent.
func (l *Listener) Close() error {
	l.shut()
	return nil
}

func (l *Listener) shut() {
	l.once.Do(func() {
		l.n.mu.Lock()
		delete(l.n.listeners, l.addr.Service)
		close(l.done)
		l.n.mu.Unlock()
		l.dl.stop()
		for {
			select {
			case c := <-l.come: // none comes any more
				_ = c.Abort()
			default:
				return
			}
		}
	})
}

// opens takes a connection that the peer opens.
func (s *session) opens(f frame) error {
	s.mu.Lock()
	if f.toOpener || f.n > maxWindow || after(f.num, s.lastIn)-1 >= numberMax/2 || s.accepted[f.num] != nil {
		defer s.mu.Unlock()
		return protocolError("stream %d opened after %d, window %d", f.num, s.lastIn, f.n)
	}
	s.lastIn = f.num
	full := len(s.accepted) >= s.n.cfg.Streams
	s.mu.Unlock()
	refuse := func(reason uint64) {
		s.send(frame{kind: kindReset, toOpener: true, num: f.num, n: reason})
	}
	if full {
		refuse(resetBusy)
		return nil
	}
	c := newConn(s, f.num, false)
	c.state, c.wr.limit = established, f.n
	c.local = Addr{s.n.eng.Rank(), f.service}
	c.remote = Addr{s.rank, "~" + strconv.Itoa(int(f.num))}
	// Accept may hand the connection out at once: what it sends must come behind
	// its acceptance.
	s.n.mu.Lock()
	l := s.n.listeners[f.service]
	room := l != nil && len(l.come) < cap(l.come)
	s.n.mu.Unlock()
	switch {
	case l == nil:
		refuse(resetRefused)
		return nil
	case !room:
		refuse(resetBusy)
		return nil
	}
	s.mu.Lock()
	s.accepted[f.num] = c
	s.mu.Unlock()
	c.control(kindAccept, uint64(s.n.cfg.Window))
	s.n.mu.Lock()
	shut := closed(l.done)
	if !shut {
		l.come <- c // only the engine fills it, one at a time: there is room
	}
	s.n.mu.Unlock()
	if shut {
		_ = c.Abort()
	}
	return nil
}
