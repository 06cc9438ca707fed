package rmanet

import (
	"container/list"
	"errors"
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
	amu  sync.Mutex // one Accept at a time
	dl   deadline
	ev   *rma.Event // set when Accept has to check again

	// Net.mu guards these.
	come    []*Conn                 // set up, not accepted yet
	waits   map[*session]*list.List // of *opening, in order; none is empty
	setting int                     // connections that are being set up
	closed  bool
}

// opening is a peer's request for a connection that waits for room.
type opening struct {
	l      *Listener
	s      *session
	num    uint32
	window uint64
	seq    uint64        // in the order of all requests
	at     *list.Element // nil: it waits no longer; Net.mu guards it
}

// Listen offers a service, for example "8080", to all ranks; "0" chooses a free number. If
// the name has a listener already, the error wraps syscall.EADDRINUSE.
func Listen(eng *rma.Engine, service string) (net.Listener, error) {
	l, err := Of(eng).Listen(service)
	if err != nil {
		return nil, err // and no nil *Listener in the interface
	}
	return l, nil
}

// firstFree is the first number for Listen of "0", as for ephemeral ports.
const firstFree = 32768

// Listen is the function Listen for this engine.
func (n *Net) Listen(service string) (*Listener, error) {
	l := &Listener{n: n, addr: Addr{n.eng.Rank(), service}, ev: n.eng.NewEvent(), waits: map[*session]*list.List{}}
	l.dl.ev = l.ev
	err := checkService(service)
	if err == nil {
		err = n.offer(l)
	}
	if err == nil && n.run() != nil {
		err = net.ErrClosed
	}
	if err != nil {
		return nil, l.fail("listen", err)
	}
	return l, nil
}

// offer registers the listener, so that peers can connect to it.
func (n *Net) offer(l *Listener) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err != nil {
		return n.err
	}
	for i := firstFree; l.addr.Service == "0" && i < firstOwn; i++ {
		if s := strconv.Itoa(i); n.listeners[s] == nil {
			l.addr.Service = s
		}
	}
	if l.addr.Service == "0" || n.listeners[l.addr.Service] != nil {
		return syscall.EADDRINUSE
	}
	n.listeners[l.addr.Service] = l
	return nil
}

func (l *Listener) fail(op string, err error) error {
	return &net.OpError{Op: op, Net: Network, Addr: l.addr, Err: err}
}

// Accept implements net.Listener. After Close its error is net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	l.amu.Lock()
	defer l.amu.Unlock()
	for {
		l.ev.Reset()
		c, err := l.next()
		if err != nil {
			return nil, l.fail("accept", err)
		}
		if c != nil {
			l.admit()
			return c, nil
		}
		if err := l.ev.Wait((*until)(&l.dl)); errors.Is(err, rma.ErrClosed) {
			l.n.gone(err)
		}
	}
}

// next returns the connection that has waited longest, or why there will be none, or
// neither.
func (l *Listener) next() (*Conn, error) {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	switch {
	case l.closed:
		return nil, net.ErrClosed
	case l.dl.over():
		return nil, os.ErrDeadlineExceeded
	case len(l.come) == 0:
		return nil, nil
	}
	c := l.come[0]
	l.come[0] = nil
	l.come = l.come[1:]
	return c, nil
}

// SetDeadline bounds Accept.
func (l *Listener) SetDeadline(t time.Time) error {
	l.dl.set(t)
	return nil
}

// Addr returns an Addr.
func (l *Listener) Addr() net.Addr { return l.addr }

// Close ends listening: connections that were not accepted are reset, those that wait to be
// set up are refused. A second Close returns net.ErrClosed.
func (l *Listener) Close() error {
	if !l.shut() {
		return l.fail("close", net.ErrClosed)
	}
	return nil
}

// shut closes the listener; it reports whether it was open.
func (l *Listener) shut() bool {
	n := l.n
	n.mu.Lock()
	if l.closed {
		n.mu.Unlock()
		return false
	}
	l.closed = true
	delete(n.listeners, l.addr.Service)
	come := l.come
	l.come = nil
	var waits []*opening
	for _, q := range l.waits {
		for e := q.Front(); e != nil; e = e.Next() {
			o := e.Value.(*opening)
			o.at = nil
			waits = append(waits, o)
		}
	}
	clear(l.waits)
	n.mu.Unlock()
	l.dl.stop() // and wakes Accept
	for _, c := range come {
		_ = c.Abort()
	}
	for _, o := range waits {
		o.s.refuse(o.num, resetRefused)
	}
	return true
}

// opens handles the peer's request to open a connection.
func (s *session) opens(f frame) error {
	o, reason, err := s.request(f)
	switch {
	case err != nil:
		return err
	case o == nil:
		s.refuse(f.num, reason)
	default:
		o.l.admit()
	}
	return nil
}

// request makes the peer's request wait at its listener, or returns the reason of a refusal.
func (s *session) request(f frame) (o *opening, reason uint64, err error) {
	n := s.n
	n.mu.Lock()
	defer n.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.toOpener || f.n > maxWindow || after(f.num, s.lastIn)-1 >= numberMax/2 || s.accepted[f.num] != nil || s.waits[f.num] != nil {
		return nil, 0, protocolError("stream %d opened after %d, window %d", f.num, s.lastIn, f.n)
	}
	s.lastIn = f.num
	l := n.listeners[f.service]
	switch {
	case errors.Is(s.err, ErrProtocol):
		return nil, resetProtocol, nil
	case len(s.waits) >= n.cfg.Streams:
		return nil, resetBusy, nil
	case l == nil || s.err != nil:
		return nil, resetRefused, nil
	}
	n.requests++
	o = &opening{l: l, s: s, num: f.num, window: f.n, seq: n.requests}
	q := l.waits[s]
	if q == nil {
		q = list.New()
		l.waits[s] = q
	}
	o.at = q.PushBack(o)
	s.waits[f.num] = o
	return o, 0, nil
}

// refuse sends the peer the refusal of its request.
func (s *session) refuse(num uint32, reason uint64) {
	s.mu.Lock()
	delete(s.waits, num)
	s.mu.Unlock()
	s.send(frame{kind: kindReset, toOpener: true, num: num, n: reason})
}

// withdrawn removes the peer's request with this number; it reports whether it waited.
func (s *session) withdrawn(num uint32) bool {
	s.mu.Lock()
	o := s.waits[num]
	s.mu.Unlock()
	return o != nil && o.l.forget(o)
}

// forget removes a request; it reports whether it waited.
func (l *Listener) forget(o *opening) bool {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	waited := o.at != nil
	if waited {
		l.drop(o)
	}
	o.s.mu.Lock()
	delete(o.s.waits, o.num)
	o.s.mu.Unlock()
	return waited
}

// drop removes a request that waits. Net.mu is held.
func (l *Listener) drop(o *opening) {
	q := l.waits[o.s]
	if q.Remove(o.at); q.Len() == 0 {
		delete(l.waits, o.s)
	}
	o.at = nil
}

// admit calls admit of all listeners with waiting requests.
func (n *Net) admit() {
	n.mu.Lock()
	var ls []*Listener
	for _, l := range n.listeners {
		if len(l.waits) > 0 {
			ls = append(ls, l)
		}
	}
	n.mu.Unlock()
	for _, l := range ls {
		l.admit()
	}
}

// admit sets up waiting connections while there is room for them.
func (l *Listener) admit() {
	n := l.n
	for c := l.admits(); c != nil; c = l.admits() {
		// Send the acceptance first: as soon as Accept returns the connection, the
		// application may send data on it.
		c.control(kindAccept, uint64(n.cfg.Window))
		n.mu.Lock()
		l.setting--
		closed := l.closed
		if !closed {
			l.come = append(l.come, c)
		}
		n.mu.Unlock()
		if closed {
			_ = c.Abort()
			continue
		}
		l.ev.Set()
	}
}

// admits creates the connection that has waited longest among those with room; nil if there
// is none.
func (l *Listener) admits() *Conn {
	n := l.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(l.come)+l.setting >= n.cfg.Backlog {
		return nil
	}
	for {
		var first *opening
		for s, q := range l.waits { // not each request: a peer may have very many
			if o := q.Front().Value.(*opening); (first == nil || o.seq < first.seq) && s.room() {
				first = o
			}
		}
		if first == nil {
			return nil
		}
		if c := first.accept(); c != nil {
			l.drop(first)
			l.setting++
			return c
		} // else the session has failed meanwhile, and refuses what still waits
	}
}

// room reports whether the peer may have one more connection.
func (s *session) room() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err == nil && len(s.accepted) < s.n.cfg.Streams
}

// accept creates the connection if its peer may have one more.
func (o *opening) accept() *Conn {
	s := o.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.accepted) >= s.n.cfg.Streams || s.waits[o.num] != o {
		return nil
	}
	c := newConn(s, o.num, false)
	c.state, c.wr.limit = established, o.window
	c.local = o.l.addr
	c.remote = Addr{s.rank, own(o.num)}
	delete(s.waits, o.num)
	s.accepted[o.num] = c
	return c
}
