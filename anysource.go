package rma

import (
	"errors"
	"fmt"

	"github.com/seed33544411/rma/internal/message"
)

// AnyRank stands for all ranks where an error has no other.
const AnyRank = -1

// LibraryTags is the first of the tags that belong to libraries built on this
// package, such as rmanet: receives that take any tag do not take messages with
// this one or a greater.
const LibraryTags = message.LibraryTags

// ErrNoSender says that nobody is left who could send: every other rank of the
// job is gone. It comes inside a *PeerError for AnyRank.
var ErrNoSender = errors.New("every other rank is gone")

// Envelope is what is known of a message beside its bytes.
type Envelope struct {
	From int    // rank of the sender
	Tag  uint32 // as sent
	Len  int    // bytes
}

// Recv takes the next message of any peer, whatever its tag (below LibraryTags);
// RecvRequest.WaitFrom says whose it was. Messages of one peer are taken in the
// order in which it sent them; between peers there is no order, but a peer whose
// message waits gets its turn before another one's second. A message goes to the
// first receive, in the order of the calls, that asks for it, be that one for any
// peer or for this one. The request fails, with an error that wraps ErrNoSender,
// only when every other rank is gone. Looking at all peers costs the engine some
// 50 ns a peer and round. It does not allocate.
// Hot path.
func (e *Engine) Recv(buf []byte) RecvRequest {
	o := e.newAny(buf)
	o.in.Any = true
	return RecvRequest{o.peer.message(o)}
}

// RecvTag takes the next message of any peer that has this tag.
func (e *Engine) RecvTag(tag uint32, buf []byte) RecvRequest {
	o := e.newAny(buf)
	o.in.Tag = tag
	return RecvRequest{o.peer.message(o)}
}

// RecvFunc is RecvTag for a message that is used where it arrived, see
// Peer.RecvFunc.
func (e *Engine) RecvFunc(tag uint32, buf []byte, use func(m Envelope, parts [][]byte)) RecvRequest {
	o := e.newAny(buf)
	o.in.Tag, o.in.Use = tag, func(tag uint32, parts [][]byte) {
		m := Envelope{From: o.in.From, Tag: tag}
		for _, p := range parts {
			m.Len += len(p)
		}
		use(m, parts)
	}
	return RecvRequest{o.peer.message(o)}
}

// Probe asks for the next message of any peer that has this tag, and leaves it
// where it is: see Peer.Probe.
func (e *Engine) Probe(tag uint32) RecvRequest {
	o := e.newAny(nil)
	o.in.Tag, o.in.Peek = tag, true
	return RecvRequest{o.peer.message(o)}
}

// newAny begins a receive from any peer. The peer it is made for is this rank,
// whose end is the engine's.
func (e *Engine) newAny(buf []byte) *messageOp {
	o := e.peers[e.Rank()].newMessage(kindRecvAny)
	o.in.Buf = buf
	return o
}

// enqueueAny gives a receive the first message that waits for it, beginning
// behind the peer that was served last, or puts it on the list that all channels
// look at.
func (h *hub) enqueueAny(o *messageOp) {
	o.in.Order = h.shared.Order()
	h.listenAll() // also if a message waits: what others have sent gets its turn then
	if h.offer(&o.in) {
		return
	}
	if err := h.noSender(); err != nil {
		o.fail(err)
		return
	}
	h.shared.Post(&o.in)
}

// again takes a receive back whose message was lost with its sender.
func (h *hub) again(in *message.In) {
	o := in.Done.(*messageOp)
	if o.peer.eng.closed.Load() {
		o.fail(ErrClosed)
	} else if !h.offer(in) {
		if err := h.noSender(); err != nil {
			o.fail(err)
			return
		}
		h.shared.Post(in)
	}
}

// offer offers what waits at all peers to in, in turn.
func (h *hub) offer(in *message.In) bool {
	many := in.Source != nil
	n, first, taken := len(h.peers), h.turn, false
	for i := range n {
		p := h.peers[(first+i)%n]
		var took bool
		switch {
		case p.own:
			took = p.talk.loop.Offer(in)
		case p.talk.ch != nil:
			took = p.talk.ch.Offer(in)
		}
		if took {
			taken = true
			h.turn = (p.rank + 1) % n
			if !many {
				return true
			}
		}
	}
	return taken
}

// listenAll has the channels of all peers looked at.
func (h *hub) listenAll() {
	for _, p := range h.peers {
		if p.talk.ch != nil && p.down == nil && p.talk.err == nil {
			h.listen(p)
		}
	}
}

// noSender is the error of a receive from any peer when no other is left; a job
// of one rank has only itself.
func (h *hub) noSender() error {
	if len(h.peers) == 1 {
		return nil
	}
	var why error
	for _, p := range h.peers {
		if p.own {
			continue
		}
		if p.talk.ended == nil {
			return nil
		}
		why = p.talk.ended
	}
	return fmt.Errorf("%w: %w", ErrNoSender, why)
}
