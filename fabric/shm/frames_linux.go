package shm

import "fmt"

// frameSender is this side's end of the ring in the peer's channel.
type frameSender struct {
	slots   []frame
	tail    uint64      // frames published
	seen    uint64      // the peer's head as last read
	starved bool        // reserve found no room and has said so to the peer
	peer    *chanHeader // of the ring
}

// fits reports whether k more frames fit into the ring as the peer's head was last read.
func (s *frameSender) fits(k int) bool { return s.tail+uint64(k)-s.seen <= uint64(len(s.slots)) }

// reserve reports whether k more frames fit into the ring, and asks the peer, if they do
// not, for a wake-up when they do.
func (s *frameSender) reserve(k int) (bool, error) {
	if !s.fits(k) {
		if err := s.readHead(); err != nil {
			return false, err
		}
	}
	switch fits := s.fits(k); {
	case !fits:
		s.starved = true
		s.peer.starved.Store(1)
		err := s.readHead() // the peer may have made room before it could know
		return err == nil && s.fits(k), err
	case s.starved:
		s.starved = false
		s.peer.starved.Store(0)
	}
	return true, nil
}

// readHead reads the peer's head, which is its claim: one that runs backwards or past
// the tail is corruption.
func (s *frameSender) readHead() error {
	h := s.peer.head.Load()
	if s.tail-h > s.tail-s.seen {
		return fmt.Errorf("%w: ring head %d outside [%d, %d]", ErrCorrupt, h, s.seen, s.tail)
	}
	s.seen = h
	return nil
}

// push publishes a frame; there is room.
func (s *frameSender) push(m *message) {
	f := &s.slots[s.tail&uint64(len(s.slots)-1)]
	f.w = m.words()
	s.tail++
	f.seq.Store(s.tail)
}

func (s *frameSender) pushNotify(imm, bytes uint32) {
	s.push(&message{kind: frameNotify, imm: imm, bytes: bytes})
}

// bye tells the peer that this is the end, so that its next Poll knows. If the
// ring is full the socket's end has to do.
func (s *frameSender) bye() {
	if n := uint64(len(s.slots)); n > 0 && s.tail-s.peer.head.Load() < n {
		s.push(&message{kind: frameBye})
	}
}

// frameReceiver is this side's end of the ring in its own channel.
type frameReceiver struct {
	slots     []frame
	head      uint64 // frames consumed
	published uint64 // head as last published
	own       *chanHeader
}

// ready reports whether the slot that the peer fills next has changed since it
// was last consumed.
func (r *frameReceiver) ready() bool {
	return r.next().seq.Load() != r.head+1-uint64(len(r.slots))
}

// next is the slot that the peer fills next.
func (r *frameReceiver) next() *frame { return &r.slots[r.head&uint64(len(r.slots)-1)] }

// publish tells the peer once a quarter of the ring how far it has been
// consumed: the peer still sees three quarters free, and its line of the head is
// left alone. It reports whether the peer is to be woken because it waits for room.
func (r *frameReceiver) publish() (wanted bool) {
	if r.head-r.published < uint64(len(r.slots))/4 {
		return false
	}
	r.published = r.head
	r.own.head.Store(r.head)
	return r.own.starved.Load() != 0
}
