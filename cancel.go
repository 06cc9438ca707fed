package rma

import (
	"github.com/seed33544411/rma/internal/message"
)

// ErrCanceled is the end of a receive that was withdrawn. It comes inside a
// *PeerError.
var ErrCanceled = message.ErrCanceled

// Cancel asks for the receive to be withdrawn; it does not wait. Wait then soon
// returns an error that wraps ErrCanceled if no message had been matched, and the
// message if one had: it is never lost, and the buffer is the engine's until Wait
// has returned. That the context of a Wait ended withdraws nothing. Calls for a
// receive that has ended do nothing.
func (r RecvRequest) Cancel() {
	if r.Done() || r.r.eng.closed.Load() {
		return // what an engine that closes has not matched ends anyway
	}
	e := r.r.eng
	o := e.peers[e.Rank()].newMessage(kindCancel)
	o.target = r.r
	e.proto.inbox.Push(&o.Operation)
	e.prog.Kick()
}

// cancel withdraws what r means, if that is still possible. Owner's: what is not
// done now does not end, and is not used again, meanwhile.
func (h *hub) cancel(r Request) {
	if r.Done() {
		return
	}
	o := r.op.Work().(*messageOp)
	k := &o.peer.talk
	switch {
	case o.kind == kindRecvAny:
		if h.shared.Cancel(&o.in) {
			o.Complete(0, 0, ErrCanceled)
		}
	case o.peer.own:
		k.loop.Cancel(&o.in)
	case k.ch != nil:
		k.ch.Cancel(&o.in)
	case k.recvs.remove(o):
		o.Complete(0, 0, ErrCanceled)
	}
}

// Probe asks for the next message of the peer that has this tag, and leaves it
// where it is. Wait and its kin tell tag and length when there is one; Done says
// whether there is now; Cancel ends the question. It has its place in the order of
// receives: messages that receives posted before take are not for it. Another
// goroutine may receive the message between the answer and the next call: where
// several receive the same tag, use a handler.
func (p *Peer) Probe(tag uint32) RecvRequest {
	o := p.newMessage(kindRecv)
	o.in.Tag, o.in.Peek = tag, true
	return RecvRequest{p.message(o)}
}

// ShortBufferError is a message that did not fit: Need bytes into Have. It unwraps
// to ErrShortBuffer.
type ShortBufferError = message.ShortBufferError
