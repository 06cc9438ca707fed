package rma

import (
	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/message/hub"
)

// AnyRank stands for all ranks where an error has no other.
const AnyRank = hub.AnyRank

// LibraryTags is the first of the tags that belong to libraries built on this
// package, such as rmanet: receives that take any tag do not take messages with
// this one or a greater.
const LibraryTags = message.LibraryTags

// ErrNoSender says that nobody is left who could send: every other rank of the
// job is gone. It comes inside a *PeerError for AnyRank.
var ErrNoSender = hub.ErrNoSender

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
	o.In.Any = true
	return RecvRequest{e.messageAny(o)}
}

// RecvTag takes the next message of any peer that has this tag.
func (e *Engine) RecvTag(tag uint32, buf []byte) RecvRequest {
	o := e.newAny(buf)
	o.In.Tag = tag
	return RecvRequest{e.messageAny(o)}
}

// RecvFunc is RecvTag for a message that is used where it arrived, see
// Peer.RecvFunc.
func (e *Engine) RecvFunc(tag uint32, buf []byte, use func(m Envelope, parts [][]byte)) RecvRequest {
	o := e.newAny(buf)
	o.In.Tag, o.In.Use = tag, func(tag uint32, parts [][]byte) {
		m := Envelope{From: o.In.From, Tag: tag}
		for _, p := range parts {
			m.Len += len(p)
		}
		use(m, parts)
	}
	return RecvRequest{e.messageAny(o)}
}

// Probe asks for the next message of any peer that has this tag, and leaves it
// where it is: see Peer.Probe.
func (e *Engine) Probe(tag uint32) RecvRequest {
	o := e.newAny(nil)
	o.In.Tag, o.In.Peek = tag, true
	return RecvRequest{e.messageAny(o)}
}

// newAny begins a receive from any peer.
func (e *Engine) newAny(buf []byte) *hub.Op {
	o := e.proto.hub.NewAny()
	o.In.Buf = buf
	return o
}

// messageAny posts a receive from any peer.
func (e *Engine) messageAny(o *hub.Op) Request {
	if e.closed.Load() {
		return refuseMessage(e, o, ErrClosed)
	}
	r := e.request(&o.Operation)
	e.proto.hub.PostAny(o)
	return r
}
