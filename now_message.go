package rma

import "github.com/seed33544411/rma/internal/initiator"

// sendNow sends a message, if it may go by itself and the link takes it at once. Else
// the request is zero and nothing has happened.
// Hot path.
func (p *Peer) sendNow(tag uint32, msg []byte) Request {
	e := p.eng
	if len(msg) > initiator.InlineMax || !p.tries() || !e.prog.Hold() {
		return Request{}
	}
	var r Request
	t, k := e.proto, &p.talk
	if k.ch != nil && p.down == nil && !t.Pending() && k.ch.SendNow(tag, msg) {
		r = e.receipt(t.receipts.Issue())
		p.counts.Sends++
		p.counts.SentBytes += uint64(len(msg))
	}
	e.prog.Disown()
	return r
}
