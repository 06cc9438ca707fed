package rma

import (
	"sync/atomic"
	"time"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/pending"
)

// hub drives the messages with all peers. All but hears belongs to the owner of the
// progress engine.
type hub struct {
	inbox     *pending.Inbox
	peers     []*Peer // by rank
	talks     talks   // peers with messages to send or receive
	nap       eager.Nap
	hears     atomic.Bool    // messages of all peers are wanted
	shared    message.Shared // receives from any peer
	receivers []*Receiving
	turn      int // the peer whose waiting messages are looked at first
}

// start begins an operation. Owner's.
func (h *hub) start(o *messageOp) {
	o.peer.eng.prog.AssertOwned()
	p := o.peer
	switch {
	case o.kind == kindCancel:
		h.cancel(o.target)
		o.Drop()
	case o.kind == kindResume:
		h.offerAgain(o.resume)
		o.Drop()
	case p.down != nil && (o.kind != kindRecv || !p.hears()):
		o.fail(p.down)
	default:
		h.enqueueMessage(p, o)
	}
}

// down fails what cannot be sent any more to a peer whose connection is no more, and, where
// no more of it will come, what waits for its messages.
func (h *hub) down(p *Peer) {
	k := &p.talk
	for k.sends.head != nil {
		k.sends.pop().fail(p.down)
	}
	if end := k.hangUp; end != nil {
		k.hangUp = nil
		time.AfterFunc(min(lastWait, p.eng.cfg.PeerTimeout), end)
	}
	k.loop.Sever(p.down)
	switch {
	case k.ch != nil:
		h.listen(p) // its messages end in the next step
	case !p.hears():
		for k.recvs.head != nil {
			k.recvs.pop().fail(p.down)
		}
		h.ended(p, p.down)
	}
}
