package rma

import (
	"github.com/seed33544411/rma/internal/message/hub"
	"github.com/seed33544411/rma/logp"
)

// Batch is a list of messages that are sent at once: the engine plans their modes together.
// It may be reused when its request is complete. It is for one goroutine.
type Batch struct {
	peer *Peer
	b    hub.Batch
	err  error // of AddBuffer
}

// Batch returns an empty batch of messages to the peer.
func (p *Peer) Batch() *Batch { return &Batch{peer: p} }

// Add appends a message. msg belongs to the engine until the batch is complete.
func (b *Batch) Add(tag uint32, msg []byte) {
	o := b.b.Add()
	o.Data, o.Tag, o.Registered = msg, tag, false
}

// AddBuffer appends a message in registered memory. A buffer that cannot be sent
// fails the whole batch in Send.
func (b *Batch) AddBuffer(tag uint32, buf Buffer) {
	o := b.b.Add()
	rights, err := buf.out(b.peer, &o.Data, &o.LKey, &o.RKey)
	o.Tag, o.Registered = tag, rights.has(PeersRead)
	if err != nil {
		if b.err == nil {
			b.err = err
		}
		b.b.Outs = b.b.Outs[:len(b.b.Outs)-1]
	}
}

// Len is the number of messages.
func (b *Batch) Len() int { return len(b.b.Outs) }

// Reset empties the batch, keeping its memory. It must not be called while the batch is in
// flight.
func (b *Batch) Reset() {
	for i := range b.b.Outs { // what was sent is not held any more
		if o := &b.b.Outs[i]; o.Data != nil {
			o.Data = nil
		}
	}
	b.b.Outs, b.err = b.b.Outs[:0], nil
}

// Explain reports how the batch would be sent now: every mode with its predicted time, term
// by term, and the plan. It sends nothing. It needs a peer with which messages have been
// exchanged before, and does not apply to this rank itself. Errors wrap ErrNotTalking, or
// are those of a connection that has ended.
func (b *Batch) Explain() (string, error) {
	p := b.peer
	if b.err != nil {
		return "", b.err
	}
	var x *logp.Explanation
	err := ErrNotTalking
	p.eng.prog.Do(func() {
		if ch := p.msg.Channel(); ch != nil {
			x, err = ch.Explain(b.b.Outs)
		}
	})
	if err != nil {
		return "", &PeerError{Rank: p.rank, Op: "explain", Err: err}
	}
	return x.String(), nil
}

// Send posts the batch. The request is complete when all its messages are, as in Peer.Send;
// its error is the first of theirs. It does not allocate.
// Hot path.
func (b *Batch) Send() Request {
	p := b.peer
	if b.err != nil {
		return p.refuse(hub.SendBatch.String(), b.err)
	}
	return p.message(p.msg.NewBatch(&b.b))
}
