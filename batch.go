package rma

import (
	"fmt"
	"strings"

	"github.com/seed33544411/rma/internal/initiator"
	"github.com/seed33544411/rma/internal/message/hub"
	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/mr"
)

// Batch is a list of messages, puts and gets that are posted together: the engine chooses
// the modes of all messages together, and likewise the ways of the puts and of the gets.
// The puts take place first, in no particular order, then the gets; then the messages are
// sent, without waiting for the data of the gets: the memory of a message must not be the
// destination of a get of the same batch. When its request is complete, a batch may be sent
// again unchanged: Send repeats its puts, gets and messages with what their memory then
// holds. It keeps that memory from the garbage collector until Reset. Earlier, Send fails
// with ErrInUse, and so does every Send until Reset if something was added meanwhile, which
// is not part of the batch. A batch must be used by one goroutine at a time. Peer.Batch makes
// one; the zero value belongs to no peer and cannot be used.
type Batch struct {
	peer  *Peer
	b     hub.Batch
	moves [2]pieceList  // of initiator.Put and initiator.Get
	whole *initiator.Op // the operation that ends when all parts have ended
	part  func(error)   // records the end of another part
	err   error         // the first error of an added operation
	req   Request       // of the last Send

	mems mr.Registrations // in which the buffers lie, which may be closed before Send
}

// pieceList is the two sides of puts or gets.
type pieceList []struct{ local, remote onesided.Piece }

func (l pieceList) size() (n, bytes int) {
	for i := range l {
		bytes += int(l[i].local.Len)
	}
	return len(l), bytes
}

// Put appends a put of src to dst. The destinations of a batch's puts must not overlap
// (ErrOverlap). If one put is refused, or the region of src is closed before Send
// (ErrForeign), Send fails for the whole batch. src belongs to the engine from Send until
// the batch is complete.
func (b *Batch) Put(dst Remote, src Buffer) { b.move(initiator.Put, src, dst) }

// Get appends a get of src to dst: see Put. dst belongs to the engine from Send until the
// batch is complete.
func (b *Batch) Get(dst Buffer, src Remote) { b.move(initiator.Get, dst, src) }

func (b *Batch) move(k initiator.Kind, local Buffer, remote Remote) {
	if b.busy() {
		return
	}
	here, err := local.piece(b.peer.eng, b.peer.link)
	there := onesided.Piece{Len: here.Len}
	if err == nil {
		there.Addr, there.Key, err = b.peer.reach(remote, here.Len, right(k))
	}
	if err != nil {
		b.fail(err)
		return
	}
	b.moves[k] = append(b.moves[k], struct{ local, remote onesided.Piece }{here, there})
	b.mems.Add(local.region.reg)
}

// fail keeps the first error of an added operation.
func (b *Batch) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// busy reports whether the batch is in flight, so that nothing may be added: the engine reads
// its lists.
func (b *Batch) busy() bool {
	if !b.req.inFlight() {
		return false
	}
	b.fail(ErrInUse)
	return true
}

// Add appends a message. msg belongs to the engine from Send until the batch is complete.
func (b *Batch) Add(tag uint32, msg []byte) { b.add(tag, msg, false) }

func (b *Batch) add(tag uint32, msg []byte, urgent bool) {
	if b.busy() {
		return
	}
	o := b.b.Add()
	o.Data, o.Tag, o.Registered, o.Urgent = msg, tag, false, urgent
}

// AddUrgent appends a message that does not wait to be combined with others: it is sent in its turn
// through the peer's ring, by itself, if it fits there, whatever the model says. See Add.
func (b *Batch) AddUrgent(tag uint32, msg []byte) { b.add(tag, msg, true) }

// AddBuffer appends a message in registered memory: see Add. If the buffer is not valid, or
// its region is closed before Send (ErrForeign), Send fails for the whole batch.
func (b *Batch) AddBuffer(tag uint32, buf Buffer) {
	if b.busy() {
		return
	}
	o := b.b.Add()
	rights, err := buf.out(b.peer, &o.Data, &o.LKey, &o.RKey)
	o.Tag, o.Registered = tag, rights.has(PeersRead)
	if err != nil {
		b.fail(err)
		b.b.Outs = b.b.Outs[:len(b.b.Outs)-1]
		return
	}
	b.mems.Add(buf.region.reg)
}

// Len returns the number of messages; puts and gets do not count.
func (b *Batch) Len() int { return len(b.b.Outs) }

// Reset empties the batch, keeping its memory. It must not be called while the batch is in
// flight.
func (b *Batch) Reset() {
	for i := range b.b.Outs { // release the messages to the garbage collector
		b.b.Outs[i].Data = nil
	}
	b.b.Outs, b.err = b.b.Outs[:0], nil
	b.mems.Reset()
	for k := range b.moves {
		b.moves[k] = b.moves[k][:0]
	}
}

// Explain reports how the batch would be sent now: the class of the path and the source of
// its parameters; every way of the puts and of the gets and every mode of the messages,
// each with the terms of its predicted time; and the choice. It sends nothing. If the
// batch has messages, the two ranks must have exchanged messages before. Otherwise, and
// for batches to this rank itself, the error wraps ErrNoMessages. Other errors are those
// of a connection that has ended.
func (b *Batch) Explain() (string, error) {
	p := b.peer
	if b.err != nil {
		return "", b.err
	}
	var text strings.Builder
	err := ErrNoMessages
	p.eng.prog.Do(func() {
		if !p.own {
			for k, list := range b.moves {
				if n, bytes := list.size(); n > 0 {
					pp := p.one.Explain(initiator.Kind(k), n, bytes)
					text.WriteString(pp.String())
				}
			}
		}
		if len(b.b.Outs) == 0 && text.Len() > 0 {
			err = nil
		} else if ch := p.msg.Channel(); ch != nil {
			var x *logp.Explanation
			if x, err = ch.Explain(b.b.Outs); err == nil {
				text.WriteString(x.String())
			}
		}
	})
	if err != nil {
		return "", &PeerError{Rank: p.rank, Op: "explain", Err: err}
	}
	return fmt.Sprintf("path: %v\n%s", p.eng.bringup.Path(p.rank), &text), nil
}

// Send posts the batch. The request is complete when all puts, gets and messages are, the
// messages as by Peer.Send; its error is the first error among them. Send does not
// allocate.
// Hot path.
func (b *Batch) Send() Request {
	p := b.peer
	if err := b.sendable(); err != nil {
		return p.refuse(hub.SendBatch.String(), err)
	}
	if len(b.moves[initiator.Put])+len(b.moves[initiator.Get]) == 0 {
		o := p.msg.NewBatch(&b.b)
		o.Needs(&b.mems)
		b.req = p.message(o)
	} else {
		b.req = b.sendAll()
	}
	return b.req
}

// sendable returns why the batch cannot be sent now.
// Hot path.
func (b *Batch) sendable() error {
	switch {
	case b.err != nil:
		return b.err
	case b.req.inFlight():
		return ErrInUse
	case b.peer.eng.closed.Load():
		return ErrClosed // Close of the engine closes the regions
	case !b.mems.Live():
		return ErrForeign
	}
	return nil
}

// sendAll is Send of a batch with puts or gets. Its first part stands for the whole: it
// ends when the last of the other parts has ended.
func (b *Batch) sendAll() Request {
	p := b.peer
	var ops [2]*initiator.Op // puts, gets
	n := 0
	for k, list := range b.moves {
		if len(list) == 0 {
			continue
		}
		o := initiator.New(&p.one, initiator.Kind(k))
		o.Needs(&b.mems)
		c := o.Cursor()
		for i := range list {
			c.AddLocal(list[i].local)
			c.AddRemote(list[i].remote)
		}
		ops[n] = o
		n++
		if c.End(); c.Overlap(o.Kind() == initiator.Put) {
			return b.dropAll(ops[:n], ErrOverlap)
		}
	}
	if p.eng.closed.Load() {
		return b.dropAll(ops[:n], ErrClosed)
	}
	b.whole = ops[0]
	if !b.whole.Spend(&p.budget) { // a batch counts once
		return b.dropAll(ops[:n], ErrBusy)
	}
	r := newRequest(p.eng, &b.whole.Operation)
	parts := n - 1
	for _, o := range ops[1:n] {
		o.Then(b.part)
	}
	var msg *hub.Op
	if len(b.b.Outs) > 0 {
		msg = p.msg.NewBatch(&b.b)
		msg.Needs(&b.mems)
		msg.Then(b.part)
		parts++
	}
	b.whole.Parts(parts)
	for _, o := range ops[:n] {
		p.one.Post(o)
	}
	if msg != nil {
		p.msg.Post(msg)
	}
	return r
}

// dropAll refuses a batch whose operations have been begun.
func (b *Batch) dropAll(ops []*initiator.Op, err error) Request {
	for _, o := range ops {
		o.Drop()
	}
	return b.peer.refuse(hub.SendBatch.String(), err)
}
