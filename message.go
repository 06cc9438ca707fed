package rma

import (
	"context"
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
	if r := p.sendNow(tag, msg); r.eng != nil {
		return r
	}
	o := p.newMessage(kindSend)
	o.out.Data, o.out.Tag = msg, tag
	return p.message(o)
}

// SendBuffer is SendTag of registered memory, which large messages are fetched
// from without copying, registering or pinning.
func (p *Peer) SendBuffer(tag uint32, b Buffer) Request {
	var data []byte
	var lkey, rkey uint32
	rights, err := b.out(p, &data, &lkey, &rkey)
	if err != nil {
		return p.refuse(kindSend.String(), err)
	}
	if r := p.sendNow(tag, data); r.eng != nil {
		return r
	}
	o := p.newMessage(kindSend)
	o.out.Data, o.out.Tag, o.out.LKey, o.out.RKey, o.out.Registered = data, tag, lkey, rkey, rights.has(PeersRead)
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
	o := p.newMessage(kindRecv)
	o.in.Buf, o.in.Any = buf, true
	return RecvRequest{p.message(o)}
}

// RecvTag takes the next message of the peer that has this tag.
func (p *Peer) RecvTag(tag uint32, buf []byte) RecvRequest {
	o := p.newMessage(kindRecv)
	o.in.Buf, o.in.Tag = buf, tag
	return RecvRequest{p.message(o)}
}

// RecvBuffer is RecvTag into registered memory, where large messages come to
// without copying, registering or pinning.
func (p *Peer) RecvBuffer(tag uint32, b Buffer) RecvRequest {
	o := p.newMessage(kindRecv)
	o.in.Tag = tag
	rights, err := b.out(p, &o.in.Buf, &o.in.LKey, &o.in.RKey)
	if err != nil {
		return RecvRequest{p.dropMessage(o, err)}
	}
	o.in.Registered, o.in.Remote = true, rights.has(PeersWrite)
	return RecvRequest{p.message(o)}
}

// RecvFunc is RecvTag for a message that is used where it arrived: use is called
// with it, in one to three parts, which are valid during the call only and may
// be changed by a dishonest peer meanwhile. A message that is too large to come
// through the ring is fetched to buf, and given to use there. use runs in the
// progress engine: it must not wait for anything.
func (p *Peer) RecvFunc(tag uint32, buf []byte, use func(tag uint32, parts [][]byte)) RecvRequest {
	o := p.newMessage(kindRecv)
	o.in.Buf, o.in.Tag, o.in.Use = buf, tag, use
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

// message hands o in.
func (p *Peer) message(o *messageOp) Request {
	if p.eng.closed.Load() {
		return p.dropMessage(o, ErrClosed)
	}
	if o.kind == kindRecvAny {
		p.eng.hear(0)
	} else if !p.talk.begun.Load() && p.talk.begun.CompareAndSwap(false, true) {
		p.startTalk()
	}
	r := p.eng.request(&o.Operation)
	if o.kind == kindRecv && p.eng.prog.Hold() {
		p.eng.proto.hub.handReceive(p, o)
		p.eng.prog.Disown()
		return r
	}
	p.eng.proto.inbox.Push(&o.Operation)
	p.eng.prog.Kick()
	return r
}

// handReceive takes a receive over. Unless a message is known to wait for it, nothing else
// is done: whoever waits, or the progress goroutine, looks for it. Owner's. Short
// path.
func (h *hub) handReceive(p *Peer, o *messageOp) {
	p.eng.prog.AssertOwned()
	if h.inbox.Pending() {
		h.inbox.Push(&o.Operation)
		p.eng.proto.Step()
		return
	}
	h.start(o)
	if ch := p.talk.ch; ch != nil && ch.Waits() {
		h.step()
	}
}

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
