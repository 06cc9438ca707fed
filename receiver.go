package rma

import (
	"fmt"

	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/message/hub"
)

// ErrUnwanted says that the receiver of a message refused it. It is the error of the send,
// inside a *PeerError.
var ErrUnwanted = message.ErrUnwanted

// Receiver takes messages as they arrive and chooses the memory of each. It is intended
// for libraries that transfer much data; applications use Handle. The progress engine
// calls its methods, one at a time, on the goroutine that drives it. They must not wait
// for anything, and must not call methods of the engine that do: see Concurrency in the
// package's comment. They may send by SendFunc.
type Receiver interface {
	// Arriving is called for every message, in the order in which its peer sent them, before
	// its bytes are read, and returns its destination. If inPlace is set, the bytes are in
	// the ring already.
	Arriving(m Envelope, inPlace bool) Landing

	// Arrived is called once for each message whose Landing set neither Later nor Unwanted,
	// with the token of the Landing. parts holds the bytes, in up to three slices that are
	// valid during the call; if they lie in the ring, a dishonest peer may change them
	// meanwhile. The calls are not in order: a message that is fetched may end after later
	// ones. If err is not nil the message is lost, because its peer is gone or the engine
	// is closed.
	Arrived(m Envelope, token any, parts [][]byte, err error)

	// Gone is called once for a peer that will send no more messages: after its last
	// Arriving, so not as long as a message is left by Landing.Later, of this receiver or of
	// one before it that takes messages of the same tags, and at once for peers
	// that are gone already. After Peer.Reset the peer may send again: Gone has then been
	// called, before the next Arriving, and is called again when the new connection ends.
	Gone(rank int, err error)
}

// Landing is the destination of a message.
type Landing struct {
	// Buf is memory for the message, at least Envelope.Len bytes, which belong to the
	// engine until Arrived. If inPlace was set, Buf may be nil: Arrived then gets the bytes
	// in the ring.
	Buf []byte

	// Token is passed to Arrived. A pointer as token does not allocate.
	Token any

	// Later leaves this message, and all later ones of the peer for this receiver, where
	// they are, until Receiving.Resume: receives posted behind this receiver do not take
	// them unless it is closed. When no more can be held, the peer's sends wait.
	Later bool

	// Unwanted drops the message. If it was only announced, its send fails with ErrUnwanted.
	Unwanted bool
}

// Receiving is the registration of a Receiver with an engine, by Engine.Receive or
// ReceiveFrom.
type Receiving struct {
	eng  *Engine
	r    *hub.Receiving
	to   Receiver
	free *arrival
}

// receive is Engine.Receive for messages of the rank only-1, or of all ranks if only is 0.
func receive(e *Engine, tag, ignore uint32, only int, to Receiver) (*Receiving, error) {
	switch {
	case to == nil:
		return nil, fmt.Errorf("rma: receive: %w: no Receiver", ErrInvalid)
	case e.closed.Load():
		return nil, ErrClosed
	}
	r := &Receiving{eng: e, to: to}
	e.proto.hub.Listen(only)
	err := ErrClosed
	e.prog.Do(func() {
		if !e.closed.Load() { // after that, Gone may have been called for the last time
			err = nil
			r.r = e.proto.hub.Receive(tag, ignore, only, (*receivingEnd)(r))
		}
	})
	return r, err
}

// Resume offers the messages again that the receiver left by Landing.Later. Any goroutine
// may call it, and so may the receiver's methods.
func (r *Receiving) Resume() { r.eng.proto.hub.Resume(r.r) }

// Close ends the registration: the receiver gets no more messages, except that Arrived may
// still be called for messages that were arriving. Messages that it has left by
// Landing.Later go to the receives behind it. The receiver's methods must not call
// Close.
func (r *Receiving) Close() {
	r.eng.prog.Do(func() { r.eng.proto.hub.Stop(r.r) })
}

// receivingEnd is a Receiving as seen by the channels.
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

// arrival is a message that is arriving at a Receiver.
type arrival struct {
	in    message.In
	r     *Receiving
	m     Envelope
	token any
	buf   [1][]byte // its destination, if not in place
	seen  bool      // Arrived has been called, or is not to be
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
		r.eng.peers[a.m.From].msg.Received(1, n)
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
