package rmanet

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/seed33544411/rma"
)

// maxControl is how many control frames may wait to be sent to one peer: one that
// does not take them, while it makes us send more, breaks the rules.
const maxControl = 1 << 16

// session is all connections with one peer. What the engine tells of the peer
// comes here, one call at a time.
type session struct {
	n    *Net
	rank int
	peer *rma.Peer

	opening sync.Mutex // numbers are handed to the engine in order; not the engine's

	mu       sync.Mutex
	opened   map[uint32]*Conn // by us
	accepted map[uint32]*Conn // opened by the peer
	last     uint32           // number that we opened last
	lastIn   uint32           // that the peer did
	err      error            // why there will be no more

	waiting  atomic.Int64 // control frames handed in and not sent
	deferred int          // control frames that are on their way, the engine's
}

func (s *session) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// side is the connections of which the peer's frames with or without toOpener speak.
func (s *session) side(toOpener bool) map[uint32]*Conn {
	if toOpener {
		return s.opened
	}
	return s.accepted
}

func (s *session) has(c *Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.side(c.opener)[c.num] == c
}

func (s *session) remove(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.side(c.opener); m[c.num] == c {
		delete(m, c.num)
		if len(s.opened)+len(s.accepted) == 0 {
			s.n.idle()
		}
	}
}

// next is the number behind the last one.
func next(num uint32) uint32 { return num%numberMax + 1 }

// after is how far num is ahead of last, in the circle of numbers.
func after(num, last uint32) uint32 { return (num + numberMax - last) % numberMax }

// open begins a connection to a service of the peer.
func (s *session) open(service string) (*Conn, error) {
	s.opening.Lock()
	defer s.opening.Unlock()
	s.mu.Lock()
	if s.err != nil {
		defer s.mu.Unlock()
		return nil, s.err
	}
	num := next(s.last)
	for s.opened[num] != nil {
		num = next(num)
	}
	s.last = num
	c := newConn(s, num, true)
	c.local = Addr{s.n.eng.Rank(), fmt.Sprintf("~%d", num)}
	c.remote = Addr{s.rank, service}
	s.opened[num] = c
	s.mu.Unlock()
	s.send(frame{kind: kindOpen, num: num, n: uint64(s.n.cfg.Window), service: service})
	return c, nil
}

// control is a control frame on its way out.
type control struct {
	s    *session
	buf  [frameMax]byte
	sent func(error)
}

var controls sync.Pool

// end is called when the frame is out, or cannot be sent: that the peer is gone is
// told by Gone.
func (c *control) end(error) {
	c.s.waiting.Add(-1)
	controls.Put(c)
}

// send sends a control frame. Nobody holds a lock that the engine takes.
func (s *session) send(f frame) {
	if s.waiting.Add(1) > maxControl {
		s.waiting.Add(-1)
		s.fail(protocolError("%d control frames wait to be taken", maxControl))
		return
	}
	c, _ := controls.Get().(*control)
	if c == nil {
		c = &control{}
		c.sent = c.end
	}
	c.s = s
	s.peer.SendFunc(tagControl, f.append(c.buf[:0]), c.sent)
}

// fail ends all connections with the peer.
func (s *session) fail(err error) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	s.err = err
	var all []*Conn
	for _, m := range []map[uint32]*Conn{s.opened, s.accepted} {
		for _, c := range m {
			all = append(all, c)
		}
	}
	s.mu.Unlock()
	lied := errors.Is(err, ErrProtocol)
	why := connReset(err)
	if errors.Is(err, rma.ErrClosed) {
		why = net.ErrClosed
	}
	for _, c := range all {
		c.end(why)
		if lied {
			c.control(kindReset, resetProtocol)
		}
	}
}

// end is reset for a peer that is gone: what has come may still be read, and a
// stream that has ended has ended well.
func (c *Conn) end(err error) {
	c.mu.Lock()
	if !c.rd.fin && c.rd.err == nil {
		c.rd.err = err
	}
	if c.wr.err == nil {
		c.wr.err = err
	}
	if c.state == dialling {
		c.state = refused
	}
	c.mu.Unlock()
	c.rd.ev.Set()
	c.wr.ev.Set()
	c.s.remove(c)
}

// arriving finds the place for a message of the peer.
func (s *session) arriving(m rma.Envelope, inPlace bool) rma.Landing {
	if s.deferred > 0 {
		return rma.Landing{Later: true} // a control frame comes first
	}
	if m.Tag == tagControl {
		if m.Len > 16*frameMax {
			s.fail(protocolError("%d bytes of control frames", m.Len))
			return rma.Landing{Unwanted: true}
		}
		if inPlace {
			return rma.Landing{Token: s}
		}
		s.deferred++
		return rma.Landing{Buf: make([]byte, m.Len), Token: (*deferral)(s)}
	}
	num := m.Tag & numberMax
	s.mu.Lock()
	c, last, err := s.side(m.Tag&toOpener != 0)[num], s.lastIn, s.err
	if m.Tag&toOpener != 0 {
		last = s.last
	}
	s.mu.Unlock()
	switch {
	case err != nil:
		return rma.Landing{Unwanted: true}
	case m.Tag>>25 != tagData>>25 || m.Tag&^(toOpener|numberMax) != tagData || num == 0 || c == nil && after(num, last)-1 < numberMax/2:
		s.fail(protocolError("message with tag %#x; the last stream is %d", m.Tag, last))
		return rma.Landing{Unwanted: true}
	case c == nil:
		return rma.Landing{Unwanted: true} // of a connection that is no more
	}
	l, err := c.arriving(m.Len, inPlace)
	if err != nil {
		s.fail(err)
		l = rma.Landing{Unwanted: true}
	}
	return l
}

// arriving finds the place for n bytes of the stream.
func (c *Conn) arriving(n int, inPlace bool) (rma.Landing, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &c.rd
	switch {
	case n == 0 || r.fin:
		return rma.Landing{}, protocolError("%d bytes for stream %d, which has ended: %v", n, c.num, r.fin)
	case c.state != established && c.opener:
		return rma.Landing{}, protocolError("bytes for stream %d, which was not accepted", c.num)
	case uint64(n) > r.limit-r.came:
		return rma.Landing{}, protocolError("%d bytes for stream %d, which has credit for %d", n, c.num, r.limit-r.came)
	}
	r.came += uint64(n)
	if r.stopped || r.err != nil {
		return rma.Landing{Unwanted: true}, nil
	}
	if inPlace {
		return rma.Landing{Token: c}, nil
	}
	if r.q.head == nil && n <= len(r.claim)-r.claimed {
		r.arriving++
		r.claimed += n
		return rma.Landing{Buf: r.claim[r.claimed-n : r.claimed], Token: (*claimant)(c)}, nil
	}
	k := newChunk(c, n)
	k.buf = k.buf[:n]
	r.q.push(k)
	return rma.Landing{Buf: k.buf, Token: k}, nil
}

// Tokens of messages that are not in place, beside *chunk.
type (
	deferral session // control frames
	claimant Conn    // bytes that Read has a place for
)

// arrived takes a message of the peer.
func (s *session) arrived(token any, parts [][]byte, err error) {
	switch t := token.(type) {
	case *session:
		s.frames(parts)
	case *deferral:
		if err == nil {
			s.frames(parts)
		}
		s.deferred--
		if r := s.n.recv.Load(); r != nil {
			r.Resume()
		}
	case *Conn:
		t.arrived(parts)
	case *claimant:
		(*Conn)(t).claimed(err)
	case *chunk:
		t.c.filled(t, err)
	}
}

// arrived takes bytes in place.
func (c *Conn) arrived(parts [][]byte) {
	c.mu.Lock()
	r := &c.rd
	for _, b := range parts {
		if r.stopped {
			break
		}
		if r.q.head == nil && r.claimed < len(r.claim) {
			n := copy(r.claim[r.claimed:], b)
			r.claimed += n
			b = b[n:]
		}
		r.q.add(c, b)
	}
	c.mu.Unlock()
	r.ev.Set()
}

// claimed takes bytes that are in Read's memory.
func (c *Conn) claimed(err error) {
	c.mu.Lock()
	r := &c.rd
	r.arriving--
	if err != nil {
		r.torn = true
		if r.err == nil {
			r.err = connReset(err)
		}
	}
	c.mu.Unlock()
	r.ev.Set()
}

// filled takes a chunk.
func (c *Conn) filled(k *chunk, err error) {
	c.mu.Lock()
	if k.ready = err == nil; !k.ready && c.rd.err == nil {
		c.rd.err = connReset(err)
	}
	if k.void {
		k.free()
	}
	c.mu.Unlock()
	c.rd.ev.Set()
}

// frames carries out control frames.
func (s *session) frames(parts [][]byte) {
	var whole [16 * frameMax]byte
	b := whole[:0] // the ring is the peer's to change
	for _, p := range parts {
		b = append(b, p...)
	}
	if len(b) == 0 {
		s.fail(protocolError("no control frame"))
	}
	for len(b) > 0 && s.why() == nil {
		f, rest, err := parseFrame(b)
		if err == nil {
			err = s.frame(f)
		}
		if err != nil {
			s.fail(err)
			return
		}
		b = rest
	}
}

// frame carries out one control frame. An error ends the session.
func (s *session) frame(f frame) error {
	if f.kind == kindOpen {
		return s.opens(f)
	}
	s.mu.Lock()
	c, last := s.side(f.toOpener)[f.num], s.lastIn
	if f.toOpener {
		last = s.last
	}
	s.mu.Unlock()
	if c == nil {
		if after(f.num, last)-1 < numberMax/2 {
			return protocolError("control frame of kind %d for stream %d; the last is %d", f.kind, f.num, last)
		}
		return nil // of a connection that is no more
	}
	switch f.kind {
	case kindReset:
		c.reset(resetError(f.n))
		return nil
	case kindStop:
		c.stopped()
		return nil
	}
	c.mu.Lock()
	err := c.frame(f)
	c.mu.Unlock()
	c.rd.ev.Set()
	c.wr.ev.Set()
	c.over()
	return err
}

// frame carries out a control frame that only changes the connection's state.
func (c *Conn) frame(f frame) error {
	r, w := &c.rd, &c.wr
	switch {
	case f.kind == kindAccept:
		if c.state != dialling || f.n > maxWindow {
			return protocolError("stream %d accepted, window %d, in state %d", c.num, f.n, c.state)
		}
		c.state, w.limit = established, f.n
	case c.state == dialling:
		return protocolError("control frame of kind %d for stream %d, which was not accepted", f.kind, c.num)
	case f.kind == kindCredit:
		if f.n < w.limit || f.n > w.handed+maxWindow {
			return protocolError("credit up to %d for stream %d, after %d", f.n, c.num, w.limit)
		}
		w.limit = f.n
	case f.kind == kindFin:
		if r.fin || f.n != r.came {
			return protocolError("stream %d ends at %d, after %d bytes", c.num, f.n, r.came)
		}
		r.fin = true
	}
	return nil
}

// stopped takes that the peer does not read any more: the sending half ends.
func (c *Conn) stopped() {
	c.mu.Lock()
	c.wr.stopped = true
	c.mu.Unlock()
	c.wr.ev.Set()
	c.closeWrite()
}

func resetError(reason uint64) error {
	switch reason {
	case resetRefused:
		return fmt.Errorf("%w: nobody listens there", syscall.ECONNREFUSED)
	case resetBusy:
		return fmt.Errorf("%w: too many connections", syscall.ECONNREFUSED)
	case resetProtocol:
		return connReset(ErrProtocol)
	}
	return syscall.ECONNRESET
}
