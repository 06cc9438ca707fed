package rma

import (
	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/logp"
)

// Batch is a list of messages that are handed over at once: the engine decides
// for all of them together how they go. It may be used again when its request
// is complete. For one goroutine.
type Batch struct {
	peer *Peer
	outs []message.Out
	err  error // of Add
	o    *messageOp
	left int
	n    int // bytes
	why  error
}

// Batch returns an empty batch of messages to the peer.
func (p *Peer) Batch() *Batch { return &Batch{peer: p} }

// Add appends a message. msg belongs to the engine until the batch is complete.
func (b *Batch) Add(tag uint32, msg []byte) {
	o := b.add()
	o.Data, o.Tag, o.Registered = msg, tag, false
}

// add is one more message, which may have been used before.
func (b *Batch) add() *message.Out {
	n := len(b.outs)
	if n < cap(b.outs) {
		b.outs = b.outs[:n+1]
	} else {
		b.outs = append(b.outs, message.Out{})
	}
	o := &b.outs[n]
	o.Done = (*batchEnd)(b)
	return o
}

// AddBuffer appends a message in registered memory. A buffer that cannot be sent
// fails the whole batch in Send.
func (b *Batch) AddBuffer(tag uint32, buf Buffer) {
	o := b.add()
	rights, err := buf.out(b.peer, &o.Data, &o.LKey, &o.RKey)
	o.Tag, o.Registered = tag, rights.has(PeersRead)
	if err != nil {
		if b.err == nil {
			b.err = err
		}
		b.outs = b.outs[:len(b.outs)-1]
	}
}

// Len is the number of messages.
func (b *Batch) Len() int { return len(b.outs) }

// Reset empties the batch, keeping its memory. Not while it is under way.
func (b *Batch) Reset() {
	for i := range b.outs { // what was sent is not held any more
		if o := &b.outs[i]; o.Data != nil {
			o.Data = nil
		}
	}
	b.outs, b.err = b.outs[:0], nil
}

// Explain says how the batch would go now, and why: every way with its predicted
// time, term by term, and the plan. It sends nothing. It needs a peer with which
// messages have been exchanged before; with oneself there is nothing to explain.
// Errors wrap ErrNotTalking, or are those of a connection that has ended.
func (b *Batch) Explain() (string, error) {
	p := b.peer
	if b.err != nil {
		return "", b.err
	}
	var x *logp.Explanation
	err := ErrNotTalking
	p.eng.prog.Do(func() {
		if p.talk.ch != nil {
			x, err = p.talk.ch.Explain(b.outs)
		}
	})
	if err != nil {
		return "", &PeerError{Rank: p.rank, Op: "explain", Err: err}
	}
	return x.String(), nil
}

// Send hands the batch in. The request is complete when all its messages are,
// as in Peer.Send; its error is the first of theirs. It does not
// allocate.
// Hot path.
func (b *Batch) Send() Request {
	p := b.peer
	if b.err != nil {
		return p.refuse(kindBatch.String(), b.err)
	}
	o := p.newMessage(kindBatch)
	o.batch, b.o, b.left, b.n, b.why = b, o, len(b.outs), 0, nil
	return p.message(o)
}

// hand gives the messages to a channel, or to this rank itself.
func (b *Batch) hand(k *talk) {
	if len(b.outs) == 0 {
		b.end()
		return
	}
	if k.ch != nil {
		k.ch.SendAll(b.outs)
		return
	}
	for i, n := 0, len(b.outs); i < n; i++ { // the last one may end the batch
		k.loop.Send(&b.outs[i])
	}
}

// batchEnd is the Batch as the end of each of its messages.
type batchEnd Batch

// Complete implements message.Completer.
func (b *batchEnd) Complete(_ uint32, n int, err error) {
	if err != nil && b.why == nil {
		b.why = err
	}
	b.n += n
	if b.left--; b.left == 0 {
		(*Batch)(b).end()
	}
}

// end completes the request.
func (b *Batch) end() {
	o := b.o
	b.o = nil
	if b.why != nil {
		o.fail(o.peer.reason(b.why))
		return
	}
	c := &b.peer.counts
	c.Batches++
	c.Sends += uint64(len(b.outs))
	c.SentBytes += uint64(b.n)
	o.Finish()
}
