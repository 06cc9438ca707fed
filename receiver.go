package rma

import (
	"fmt"

	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/message/hub"
)

// ErrUnwanted says that the receiver of a message did not want it. It comes inside a
// *PeerError.
var ErrUnwanted = message.ErrUnwanted

// Receiver takes messages as they come, for libraries that move much; Handle is
// for everybody. Its methods are called by the progress engine, one at a time, on
// whatever goroutine drives it: they must not wait for anything, and must not call
// methods of the engine that do (Wait, Close, Receive, Stats, Barrier). They may
// send: SendFunc is made for them.
type Receiver interface {
	// Arriving is told of every message, in the order in which its peer sent it,
	// before its bytes are looked at. inPlace: the bytes are here already.
	Arriving(m Envelope, inPlace bool) Landing

	// Arrived ends each message whose Landing said neither Later nor Unwanted: the bytes are in
	// parts, one to three, valid during the call; where they are seen in place
	// a dishonest peer may change them meanwhile. Not in order: a message that
	// is fetched may end later than those behind it. With an error the message is
	// lost: its peer is gone, or the engine is closed.
	Arrived(m Envelope, token any, parts [][]byte, err error)

	// Gone is called once for a peer that will send no more, behind its last
	// Arriving (so not as long as one is left for Later), and at once for those that are gone already.
	Gone(rank int, err error)
}

// Landing says where a message goes.
type Landing struct {
	// Buf is memory for it, at least Envelope.Len bytes; they belong to the
	// engine until Arrived. Nil where inPlace was set: it is seen in place.
	Buf []byte

	// Token comes back in Arrived. A pointer in it does not allocate.
	Token any

	// Later leaves this message, and with it all later ones of the peer that the
	// receiver would get, where they are; what cannot be kept stops the peer.
	// Receiving.Resume ends that.
	Later bool

	// Unwanted drops the message. Where it is not here yet its sender hears of
	// it: its request fails.
	Unwanted bool
}

// Receiving is a Receiver at work.
type Receiving struct {
	eng  *Engine
	r    *hub.Receiving
	to   Receiver
	free *arrival
	part [1][]byte // of Use
}

// Receive gives to the messages of all peers whose tags are tag but for the bits
// in ignore, from now on and those that wait, until Close. Like a receive for any
// peer it has its place in the order of receives: those posted before go first.
func (e *Engine) Receive(tag, ignore uint32, to Receiver) (*Receiving, error) {
	return e.receive(tag, ignore, 0, to)
}

// receive takes messages of the rank only-1, or of all if that is 0.
func (e *Engine) receive(tag, ignore uint32, only int, to Receiver) (*Receiving, error) {
	if e.closed.Load() {
		return nil, ErrClosed
	}
	r := &Receiving{eng: e, to: to}
	e.proto.hub.Listen(only)
	err := ErrClosed
	e.prog.Do(func() {
		if !e.closed.Load() { // else maybe behind the last call of Gone
			err = nil
			r.r = e.proto.hub.Receive(tag, ignore, only, (*receivingEnd)(r))
		}
	})
	return r, err
}

// Resume has what was left by Landing.Later offered again. It may be called from
// anywhere, the receiver's methods included.
func (r *Receiving) Resume() { r.eng.proto.hub.Resume(r.r) }

// Close ends it: later messages are not for it any more. Not to be called by the
// receiver's methods. Arrived may still be called for messages that were arriving.
func (r *Receiving) Close() {
	r.eng.prog.Do(func() { r.eng.proto.hub.Stop(r.r) })
}

// receivingEnd is the Receiving as the channels see it.
type receivingEnd Receiving

// Gone implements hub.Taker.
func (r *receivingEnd) Gone(rank int, err error) { r.to.Gone(rank, err) }

// Take implements hub.Taker.
func (r *receivingEnd) Take(from int, tag uint32, size int, inPlace bool) *message.In {
	m := Envelope{From: from, Tag: tag, Len: size}
	l := r.to.Arriving(m, inPlace)
	if l.Later {
		return nil
	}
	a := r.free
	if a == nil {
		a = &arrival{r: (*Receiving)(r)}
		a.use = a.inPlace
	} else {
		r.free = a.next
	}
	a.m, a.token = m, l.Token
	a.in = message.In{Done: a, From: from}
	switch {
	case l.Unwanted && inPlace:
		a.in.Use = drop
		a.seen = true
	case l.Unwanted:
		a.in.Refuse, a.seen = ErrUnwanted, true
	case l.Buf == nil && (inPlace || size == 0):
		a.in.Use = a.use
	case len(l.Buf) < size:
		panic(fmt.Sprintf("rma: a Receiver gave %d bytes for a message of %d", len(l.Buf), size))
	default:
		a.in.Buf, a.buf[0] = l.Buf[:size:size], l.Buf[:size:size]
	}
	return &a.in
}

func drop(uint32, [][]byte) {}

// arrival is one message on its way to a Receiver.
type arrival struct {
	in    message.In
	r     *Receiving
	m     Envelope
	token any
	buf   [1][]byte // where it goes, if not in place
	seen  bool      // the receiver has had it
	use   func(tag uint32, parts [][]byte)
	next  *arrival // in the list of free ones
}

func (a *arrival) inPlace(_ uint32, parts [][]byte) {
	a.seen = true
	a.r.to.Arrived(a.m, a.token, parts, nil)
}

// Complete implements message.Completer.
func (a *arrival) Complete(_ uint32, n int, err error) {
	r := a.r
	if err == nil {
		r.eng.peers[a.m.From].msg.Received(n)
	}
	if !a.seen {
		parts := a.buf[:]
		if a.in.Use != nil || n == 0 {
			parts = parts[:0]
		}
		r.to.Arrived(a.m, a.token, parts, err)
	}
	a.m, a.token, a.buf[0], a.seen = Envelope{}, nil, nil, false
	a.next, r.free = r.free, a
}
