package rmanet

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/seed33544411/rma"
)

// maxControl bounds the control frames that wait to be sent to one peer. A peer that causes
// more without taking them violates the protocol.
const maxControl = 1 << 16

// maxEnding bounds the streams that are closed here and that the peer has not ended. It does so without a
// call of its application.
const maxEnding = maxControl

// session holds all connections with one peer. The engine reports the peer's messages and
// its end here, one call at a time.
type session struct {
	n    *Net
	rank int
	peer *rma.Peer

	opening sync.Mutex // so that kindOpen frames are posted in the order of their numbers; never taken by the engine

	mu       sync.Mutex
	opened   map[uint32]*Conn    // by this side
	accepted map[uint32]*Conn    // opened by the peer
	waits    map[uint32]*opening // the peer's requests that wait for room
	last     uint32              // last number opened by this side
	lastIn   uint32              // last number opened by the peer
	starved  map[*Conn]bool      // have a Write that waits for memory
	ending   int                 // connections that are marked as Conn.ending
	err      error               // why there are no more connections

	in, out  atomic.Int64 // bytes of received blocks, and of outgoing ones
	waiting  atomic.Int64 // control frames posted and not sent
	stalled  atomic.Bool  // messages are left at the peer: in has reached its bound
	hungry   atomic.Bool  // starved is not empty
	lost     atomic.Bool  // the engines' connection is lost: err lasts until Peer.Reset; changed under mu
	deferred int          // control frames that are being fetched; the engine's
}

// take returns a block for n incoming bytes.
func (s *session) take(c *Conn, n int) *block {
	b := newBlock(c, n)
	s.in.Add(int64(cap(b.buf)))
	return b
}

// give releases a block of take.
func (s *session) give(b *block) {
	held := s.in.Add(-int64(cap(b.buf)))
	b.free()
	if s.stalled.Load() && held <= s.n.cfg.Memory/2 && s.stalled.CompareAndSwap(true, false) {
		s.n.recv.Load().Resume()
	}
}

// full reports whether n more bytes would exceed Config.Memory for received data of this
// peer. Messages then stay at the peer until readers have made room.
func (s *session) full(n int) bool {
	if s.in.Load()+int64(n) <= s.n.cfg.Memory {
		return false
	}
	s.stalled.Store(true)
	if s.in.Load() <= s.n.cfg.Memory/2 { // released meanwhile by a goroutine that did not see stalled
		s.stalled.Store(false)
		return false
	}
	return true
}

// lend returns a block for n outgoing bytes, or nil if Config.Memory is used up: the
// writer's event is set when there may be memory again.
func (s *session) lend(c *Conn, n int, grow func(*Conn, int) *block) *block {
	if s.out.Load() >= s.n.cfg.Memory {
		s.mu.Lock()
		s.starved[c] = true
		s.hungry.Store(true)
		s.mu.Unlock()
		if s.out.Load() >= s.n.cfg.Memory {
			return nil
		}
	}
	b := grow(c, n)
	s.out.Add(int64(cap(b.buf)))
	return b
}

// settle releases a block of lend.
func (s *session) settle(b *block) {
	left := s.out.Add(-int64(cap(b.buf)))
	b.free()
	if s.hungry.Load() && left < s.n.cfg.Memory {
		s.mu.Lock()
		starved := s.starved
		s.starved = map[*Conn]bool{}
		s.hungry.Store(false)
		s.mu.Unlock()
		for c := range starved {
			c.wr.ev.Set()
		}
	}
	if left == 0 {
		s.n.look()
	}
}

// quiet reports whether nothing is in flight to the peer.
func (s *session) quiet() bool { return s.out.Load() == 0 && s.waiting.Load() == 0 }

func newSession(n *Net, rank int) *session {
	return &session{
		n: n, rank: rank, peer: n.eng.Peer(rank),
		opened: map[uint32]*Conn{}, accepted: map[uint32]*Conn{}, waits: map[uint32]*opening{}, starved: map[*Conn]bool{},
	}
}

// all returns the present connections.
func (s *session) all() []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.AppendSeq(slices.Collect(maps.Values(s.opened)), maps.Values(s.accepted))
}

// empty reports whether there are no connections.
func (s *session) empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.opened)+len(s.accepted) == 0
}

func (s *session) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// side returns the connections that frames of the peer with or without toOpener refer to.
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
	m := s.side(c.opener)
	is := m[c.num] == c
	if is {
		delete(m, c.num)
		delete(s.starved, c)
		if c.ending {
			s.ending--
		}
	}
	last, wait := is && len(s.opened)+len(s.accepted) == 0, is && len(s.waits) > 0
	s.mu.Unlock()
	if last {
		s.n.look()
	}
	if wait {
		s.n.admit()
	}
}

// told marks a connection that is closed here: its peer is told to end the stream.
func (s *session) told(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.side(c.opener)[c.num] == c {
		c.ending = true
		s.ending++
	}
}

// next returns the number after num.
func next(num uint32) uint32 { return num%numberMax + 1 }

// after returns how far num is ahead of last, modulo numberMax.
func after(num, last uint32) uint32 { return (num + numberMax - last) % numberMax }

// open begins a connection to a service of the peer.
func (s *session) open(service string) (*Conn, error) {
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.lost.Load() && s.peer.Stats().Err == nil {
		s.renew()
	}
	s.mu.Lock()
	if s.err != nil {
		defer s.mu.Unlock()
		return nil, s.err
	}
	if s.ending >= maxEnding {
		defer s.mu.Unlock()
		return nil, fmt.Errorf("%w: the peer has not ended %d streams that are closed here", syscall.ENOBUFS, s.ending)
	}
	num := next(s.last)
	for s.opened[num] != nil {
		num = next(num)
	}
	s.last = num
	c := newConn(s, num, true)
	c.local = Addr{s.n.eng.Rank(), own(num)}
	c.remote = Addr{s.rank, service}
	s.opened[num] = c
	s.mu.Unlock()
	s.post(frame{kind: kindOpen, num: num, n: uint64(s.n.cfg.Window), service: service}, c)
	return c, nil
}

// renew allows connections again after the engines' connection was lost and replaced. The
// streams of the last one have ended on this side, and their numbers are not used again.
func (s *session) renew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost.Load() {
		s.err = nil
		s.lost.Store(false)
	}
}

// lose ends all connections with the peer, until Peer.Reset. It is called before the engine
// replaces its connection, and no message of the old one follows.
func (s *session) lose(err error) {
	s.fail(err)
	s.mu.Lock()
	s.lost.Store(s.err != nil && !errors.Is(s.err, rma.ErrClosed))
	s.mu.Unlock()
}

// control is an outgoing control frame.
type control struct {
	s    *session
	c    *Conn // that the frame opens
	buf  [frameMax]byte
	sent func(error)
}

var controls sync.Pool

// end is called when the frame has been sent, or cannot be. Gone reports the end of a peer to
// the connections that there are, but may have come before the one that the frame opens.
func (c *control) end(err error) {
	s, opens := c.s, c.c
	c.c = nil
	controls.Put(c)
	if err != nil && opens != nil {
		opens.end(ending(err))
	}
	if s.waiting.Add(-1) == 0 {
		s.n.look()
	}
}

// send sends a control frame. The caller holds no lock that the engine takes.
func (s *session) send(f frame) { s.post(f, nil) }

// post is send of a frame that opens c, unless that is nil.
func (s *session) post(f frame, opens *Conn) {
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
	c.s, c.c = s, opens
	s.peer.SendFunc(tagControl, f.append(c.buf[:0]), c.sent)
}

// ending returns the error of connections that err has ended.
func ending(err error) error {
	if errors.Is(err, rma.ErrClosed) {
		return net.ErrClosed
	}
	return connReset(err)
}

// fail ends all connections with the peer, unless an earlier call has. After a violation of
// the protocol the peer is told, for each connection and for each request, present and later.
func (s *session) fail(err error) {
	s.mu.Lock()
	if s.err != nil {
		if errors.Is(err, rma.ErrClosed) {
			s.err = err
			s.lost.Store(false)
		}
		s.mu.Unlock()
		return
	}
	s.err = err
	waits := maps.Clone(s.waits)
	clear(s.waits)
	s.mu.Unlock()
	lied, why := errors.Is(err, ErrProtocol), ending(err)
	for _, o := range waits {
		if o.l.forget(o) && lied {
			s.refuse(o.num, resetProtocol)
		}
	}
	for _, c := range s.all() {
		c.end(why)
		if lied {
			c.control(kindReset, resetProtocol)
		}
	}
}

// arriving chooses the destination of a message of the peer.
func (s *session) arriving(m rma.Envelope, inPlace bool) rma.Landing {
	if s.lost.Load() {
		s.renew() // lose was called behind the last message of the old connection
	}
	if s.deferred > 0 {
		return rma.Landing{Later: true} // a control frame before it is being fetched
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

// arriving chooses the destination of n bytes of the stream.
func (c *Conn) arriving(n int, inPlace bool) (rma.Landing, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &c.rd
	switch {
	case n == 0 || r.fin:
		return rma.Landing{}, protocolError("%d bytes for stream %d, which has ended: %v", n, c.num, r.fin)
	case c.state == dialling:
		return rma.Landing{}, protocolError("bytes for stream %d, which was not accepted", c.num)
	case uint64(n) > r.limit-r.came:
		return rma.Landing{}, protocolError("%d bytes for stream %d, which has credit for %d", n, c.num, r.limit-r.came)
	}
	unwanted := c.closed || r.err != nil
	if !unwanted && c.s.full(max(n, inBlock)) {
		return rma.Landing{Later: true}, nil
	}
	r.came += uint64(n)
	switch {
	case unwanted:
		return rma.Landing{Unwanted: true}, nil
	case inPlace:
		return rma.Landing{Token: c}, nil
	case r.q.head == nil && n <= len(r.claim)-r.claimed && c.s.peer.Unaided():
		r.arriving++
		r.claimed += n
		return rma.Landing{Buf: r.claim[r.claimed-n : r.claimed], Token: &claimant{c, r.claimed - n}}, nil
	}
	b := c.s.take(c, n)
	b.buf = b.buf[:n]
	if b.void = r.stopped; !b.void {
		r.q.push(b)
	}
	return rma.Landing{Buf: b.buf, Token: b}, nil
}

// Tokens of messages that are not in place, beside *block.
type (
	deferral session  // control frames
	claimant struct { // bytes for the memory of a waiting Read
		c  *Conn
		at int
	}
)

// arrived handles the arrival of a message of the peer.
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
		t.c.claimed(t.at, err)
	case *block:
		t.c.filled(t, err)
	}
}

// arrived copies bytes that lie in the ring.
func (c *Conn) arrived(parts [][]byte) {
	c.mu.Lock()
	r := &c.rd
	dropped := 0
	for _, b := range parts {
		if r.stopped {
			dropped += len(b)
			continue
		}
		if r.q.head == nil && r.claimed < len(r.claim) {
			n := copy(r.claim[r.claimed:], b)
			r.claimed += n
			b = b[n:]
		}
		r.q.add(c, b)
	}
	c.took(dropped)
	r.ev.Set()
}

// claimed records the arrival of bytes in Read's memory.
func (c *Conn) claimed(at int, err error) {
	c.mu.Lock()
	r := &c.rd
	r.arriving--
	if err != nil {
		r.torn, r.claimed = true, min(r.claimed, at)
		if r.err == nil {
			r.err = connReset(err)
		}
	}
	c.mu.Unlock()
	r.ev.Set()
}

// filled records the arrival of a block.
func (c *Conn) filled(b *block, err error) {
	c.mu.Lock()
	r := &c.rd
	n := 0
	if b.ready, b.failed = err == nil, err != nil; b.failed && r.err == nil {
		r.err = connReset(err)
	}
	switch {
	case b.void:
		n = len(b.buf)
		c.s.give(b)
	case b.ready:
		r.q.join(b)
	}
	c.took(n)
	r.ev.Set()
}

// frames executes control frames; when the session has ended, only requests, to refuse them.
func (s *session) frames(parts [][]byte) {
	var whole [16 * frameMax]byte
	b := whole[:0] // a copy: the peer can change the ring
	for _, p := range parts {
		b = append(b, p...)
	}
	if len(b) == 0 {
		s.fail(protocolError("no control frame"))
	}
	for len(b) > 0 {
		f, rest, err := parseFrame(b)
		if err == nil && (f.kind == kindOpen || s.why() == nil) {
			err = s.frame(f)
		}
		if err != nil {
			s.fail(err)
			return
		}
		b = rest
	}
}

// frame executes one control frame. An error ends the session.
func (s *session) frame(f frame) error {
	if f.kind == kindOpen {
		return s.opens(f)
	}
	// Look for a request first: Accept may turn it into a connection meanwhile.
	if f.kind == kindReset && !f.toOpener && s.withdrawn(f.num) {
		return nil
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
		if f.n == resetUnread {
			c.end(resetError(f.n))
		} else {
			c.reset(resetError(f.n))
		}
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

// frame executes a control frame that only changes the connection's state.
func (c *Conn) frame(f frame) error {
	r, w := &c.rd, &c.wr
	switch {
	case c.state == refused: // it ends here, and has not been removed yet
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

// stopped handles the close of the connection by the peer: the sending half ends.
func (c *Conn) stopped() {
	c.mu.Lock()
	c.wr.stopped = true
	c.wr.lost = c.wr.lost || c.wr.refused
	c.mu.Unlock()
	c.closeWrite()
}

func resetError(reason uint64) error {
	switch reason {
	case resetRefused:
		return fmt.Errorf("%w: no listener at the address", syscall.ECONNREFUSED)
	case resetBusy:
		return fmt.Errorf("%w: too many connections wait to be accepted", syscall.ENOBUFS)
	case resetProtocol:
		return connReset(ErrProtocol)
	case resetUnread:
		return fmt.Errorf("%w: the peer closed with unread data", syscall.ECONNRESET)
	}
	return syscall.ECONNRESET
}
