package rma

import (
	"context"

	"github.com/seed33544411/rma/internal/initiator"
	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/message/hub"
)

// Send sends msg to the peer, with tag 0. Receives take messages in the order of
// the calls, whatever way each of them goes. The request is complete when msg may
// be used again: soon where it was copied, when the peer has fetched it where it
// is large. Whether the peer has received the message is not known then. While
// the peer has no room, or has not called Send or Recv for this rank yet, it
// waits; what waits for the same peer goes together in the cheapest way. Short
// path: does not allocate, after the first one to a peer.
func (p *Peer) Send(msg []byte) Request { return p.SendTag(0, msg) }

// SendTag is Send with a tag for the receiver to choose by.
func (p *Peer) SendTag(tag uint32, msg []byte) Request {
	if r := p.trySend(tag, msg); r.eng != nil {
		return r
	}
	o := p.msg.New(hub.Send)
	o.Out.Data, o.Out.Tag = msg, tag
	return p.message(o)
}

// SendBuffer is SendTag of registered memory, which large messages are fetched
// from without copying, registering or pinning.
func (p *Peer) SendBuffer(tag uint32, b Buffer) Request {
	var data []byte
	var lkey, rkey uint32
	rights, err := b.out(p, &data, &lkey, &rkey)
	if err != nil {
		return p.refuse(hub.Send.String(), err)
	}
	if r := p.trySend(tag, data); r.eng != nil {
		return r
	}
	o := p.msg.New(hub.Send)
	o.Out.Data, o.Out.Tag, o.Out.LKey, o.Out.RKey, o.Out.Registered = data, tag, lkey, rkey, rights.has(PeersRead)
	return p.message(o)
}

// SendFunc is SendTag for those who do not wait: done is called once when msg may
// be used again, or with the error. It runs in the progress engine, perhaps before
// SendFunc returns: it must not wait for anything. done may be nil. SendFunc does
// not allocate.
// Hot path.
func (p *Peer) SendFunc(tag uint32, msg []byte, done func(error)) {
	if done == nil {
		done = func(error) {} //hot:allow captures nothing, so it is static
	}
	p.SendTag(tag, msg).Then(done)
}

// Recv takes the next message of the peer, whatever its tag (below LibraryTags).
// Until the request is complete buf belongs to the engine. A message longer than
// buf fails the request with a *ShortBufferError, which wraps ErrShortBuffer, and
// stays for the next.
func (p *Peer) Recv(buf []byte) RecvRequest {
	o := p.msg.New(hub.Recv)
	o.In.Buf, o.In.Any = buf, true
	return RecvRequest{p.message(o)}
}

// RecvTag takes the next message of the peer that has this tag.
func (p *Peer) RecvTag(tag uint32, buf []byte) RecvRequest {
	o := p.msg.New(hub.Recv)
	o.In.Buf, o.In.Tag = buf, tag
	return RecvRequest{p.message(o)}
}

// RecvBuffer is RecvTag into registered memory, where large messages come to
// without copying, registering or pinning.
func (p *Peer) RecvBuffer(tag uint32, b Buffer) RecvRequest {
	o := p.msg.New(hub.Recv)
	o.In.Tag = tag
	rights, err := b.out(p, &o.In.Buf, &o.In.LKey, &o.In.RKey)
	if err != nil {
		return RecvRequest{refuseMessage(p.eng, o, err)}
	}
	o.In.Registered, o.In.Remote = true, rights.has(PeersWrite)
	return RecvRequest{p.message(o)}
}

// RecvFunc is RecvTag for a message that is used where it arrived: use is called
// with it, in one to three parts, which are valid during the call only and may
// be changed by a dishonest peer meanwhile. A message that is too large to come
// through the ring is fetched to buf, and given to use there. use runs in the
// progress engine: it must not wait for anything.
func (p *Peer) RecvFunc(tag uint32, buf []byte, use func(tag uint32, parts [][]byte)) RecvRequest {
	o := p.msg.New(hub.Recv)
	o.In.Buf, o.In.Tag, o.In.Use = buf, tag, use
	return RecvRequest{p.message(o)}
}

// RecvRequest is a receive under way.
type RecvRequest struct{ r Request }

// Wait returns the length of the message. Errors as Request.Wait.
func (r RecvRequest) Wait(ctx context.Context) (n int, err error) {
	_, n, err = r.WaitTag(ctx)
	return n, err
}

// WaitTag returns the tag of the message as well.
func (r RecvRequest) WaitTag(ctx context.Context) (tag uint32, n int, err error) {
	m, err := r.WaitFrom(ctx)
	return m.Tag, m.Len, err
}

// WaitFrom returns all that is known of the message.
func (r RecvRequest) WaitFrom(ctx context.Context) (m Envelope, err error) {
	_, err = r.r.wait(ctx, &m)
	return m, err
}

// Done reports whether Wait would return at once.
func (r RecvRequest) Done() bool { return r.r.Done() }

// message posts o.
// Hot path.
func (p *Peer) message(o *hub.Op) Request {
	e := p.eng
	if e.closed.Load() {
		return refuseMessage(e, o, ErrClosed)
	}
	if o.Kind().Sends() && !o.Spend(&p.budget) {
		return refuseMessage(e, o, ErrBusy)
	}
	r := e.request(&o.Operation)
	p.msg.Post(o)
	return r
}

// trySend sends a message, if it may go by itself and the link takes it at once. Else
// the request is zero and nothing has happened.
// Hot path.
func (p *Peer) trySend(tag uint32, msg []byte) Request {
	if len(msg) > initiator.InlineMax || !p.tries() {
		return Request{}
	}
	n := p.msg.TrySend(tag, msg)
	if n == 0 {
		return Request{}
	}
	return p.eng.receipt(n)
}

// refuseMessage is the request of an operation that was begun and is refused.
func refuseMessage(e *Engine, o *hub.Op, err error) Request {
	return Request{eng: e, err: o.Refuse(err)}
}

// ErrCanceled is the end of a receive that was withdrawn. It comes inside a
// *PeerError.
var ErrCanceled = message.ErrCanceled

// Cancel asks for the receive to be withdrawn; it does not wait. Wait then soon
// returns an error that wraps ErrCanceled if no message had been matched, and the
// message if one had: it is never lost, and the buffer is the engine's until Wait
// has returned. That the context of a Wait ended withdraws nothing. Calls for a
// receive that has ended do nothing.
func (r RecvRequest) Cancel() {
	if e := r.r.eng; !r.Done() && !e.closed.Load() { // what an engine that closes has not matched ends anyway
		e.proto.hub.Cancel(r.r.op, r.r.gen)
	}
}

// Probe asks for the next message of the peer that has this tag, and leaves it
// where it is. Wait and its kin tell tag and length when there is one; Done says
// whether there is now; Cancel ends the question. It has its place in the order of
// receives: messages that receives handed in before take are not for it. Another
// goroutine may receive the message between the answer and the next call: where
// several receive the same tag, use a handler.
func (p *Peer) Probe(tag uint32) RecvRequest {
	o := p.msg.New(hub.Recv)
	o.In.Tag, o.In.Peek = tag, true
	return RecvRequest{p.message(o)}
}

// ShortBufferError is a message that did not fit: Need bytes into Have. It unwraps
// to ErrShortBuffer.
type ShortBufferError = message.ShortBufferError

// out names the buffer's memory and its keys on the link to p.
func (b Buffer) out(p *Peer, mem *[]byte, lkey, rkey *uint32) (Access, error) {
	s, err := b.sge(p.eng, p.link)
	if err != nil {
		return 0, err
	}
	*mem, *lkey = b.region.reg.Bytes()[b.off:b.off+b.n], s.LKey
	k := b.region.reg.Key()
	*rkey = k.RKeys[p.num]
	return Access(k.Rights), nil
}

// LibraryTags is the first of the tags that are reserved for libraries built on this
// package, such as rmanet: receives of any tag do not take messages with this tag or a
// greater one.
const LibraryTags = message.LibraryTags

// ErrNoSender says that no rank is left that could send: every other rank of the job is
// gone. It comes inside a *PeerError for AnyRank.
var ErrNoSender = hub.ErrNoSender

// Recv receives the next message of any peer, whatever its tag (below LibraryTags);
// RecvRequest.WaitFrom returns its sender. Messages of one peer are received in the order
// in which it sent them. There is no order between peers, but a peer whose message waits
// gets its turn before another peer gets a second one. A message goes to the first receive,
// in the order of the calls, that matches it, whether that receive is for any peer or for
// one. The request fails, with an error that wraps ErrNoSender, only when every other rank
// is gone. While it waits, the engine polls all peers, which costs about 50 ns per peer and
// round. It does not allocate.
// Hot path.
func (e *Engine) Recv(buf []byte) RecvRequest {
	o := e.newAny(buf)
	o.In.Any = true
	return RecvRequest{e.messageAny(o)}
}

// RecvTag receives the next message of any peer that has this tag.
func (e *Engine) RecvTag(tag uint32, buf []byte) RecvRequest {
	o := e.newAny(buf)
	o.In.Tag = tag
	return RecvRequest{e.messageAny(o)}
}

// RecvFunc is RecvTag for a message that is used in place, see Peer.RecvFunc.
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

// Probe reports the next message of any peer that has this tag, without receiving it: see
// Peer.Probe.
func (e *Engine) Probe(tag uint32) RecvRequest {
	o := e.newAny(nil)
	o.In.Tag, o.In.Peek = tag, true
	return RecvRequest{e.messageAny(o)}
}

// newAny creates a receive from any peer.
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
