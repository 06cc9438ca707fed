package rma

import (
	"context"

	"github.com/seed33544411/rma/fabric"
)

// Send sends msg to the peer, whose Recv takes messages in the order of the
// calls. The request is complete when msg may be used again; whether the peer
// has taken the message is not known then. While the peer's ring is full, or
// the peer has not called Send or Recv for this rank yet, it waits. A message
// larger than the ring takes at once is refused with an error that wraps
// ErrTooLarge. Short path: does not allocate, after the first one to a peer.
func (p *Peer) Send(msg []byte) Request { return p.message(kindSend, msg) }

// Recv takes the next message of the peer. Until the request is complete buf
// belongs to the engine. A message longer than buf fails the request with an
// error that wraps ErrShortBuffer, and stays for the next.
func (p *Peer) Recv(buf []byte) RecvRequest { return RecvRequest{p.message(kindRecv, buf)} }

// RecvRequest is a receive under way.
type RecvRequest struct{ r Request }

// Wait returns the length of the message. Errors as Request.Wait.
func (r RecvRequest) Wait(ctx context.Context) (n int, err error) {
	v, err := r.r.wait(ctx)
	return int(v), err
}

// Done reports whether Wait would return at once.
func (r RecvRequest) Done() bool { return r.r.Done() }

func (p *Peer) message(kind fabric.Op, buf []byte) Request {
	if p.eng.closed.Load() {
		return p.refuse(kind, ErrClosed)
	}
	if !p.talk.begun.Load() && p.talk.begun.CompareAndSwap(false, true) {
		p.startTalk()
	}
	o := newOp(p, kind)
	o.buf = buf
	r := Request{eng: p.eng, op: o, gen: o.gen.Load()}
	p.eng.proto.in.push(o)
	p.eng.prog.Kick()
	return r
}
