package hub

import (
	"sync"

	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/pending"
)

// Kind is the kind of an Op.
type Kind uint8

// Kinds of operations.
const (
	Send Kind = iota
	SendBatch
	Recv
	RecvAny     // from any rank
	RecvSeveral // of a RecvBatch
	call        // of a function
)

var kindNames = [...]string{
	Send: "send", SendBatch: "batch", Recv: "receive", RecvAny: "receive", RecvSeveral: "receive", call: "call",
}

// String returns the name of the operation in errors.
func (k Kind) String() string { return kindNames[k] }

// Sends reports whether operations of kind k send messages to a peer.
func (k Kind) Sends() bool { return k == Send || k == SendBatch }

// OfLibrary reports whether o sends a message with a tag of a library. Batches are the
// application's.
// Hot path.
func (o *Op) OfLibrary() bool { return o.Out.Tag >= message.LibraryTags && o.kind == Send }

// receives reports whether operations of kind k receive messages from a peer.
func (k Kind) receives() bool { return k == Recv || k == RecvSeveral }

// owner is the Conversation or the Hub that an Op belongs to.
type owner interface {
	start(o *Op)
	poll() bool
	complete(o *Op, tag uint32, n int, err error)
	received(in *message.In, n int, err error) error // counts it, and returns the error of the request
	error(op string, err error) error
	blame(err error)
	rank() int
}

// Op is one operation, from the call to the end of its request.
type Op struct {
	pending.Operation
	owner owner
	kind  Kind
	batch *Batch
	recvs *RecvBatch
	call  func()
	place uint32 // of the operation ahead that a send waits for

	Out message.Out // of a send
	In  message.In  // of a receive

	Tag  uint32 // of the received message
	From int    // its sender
}

var ops = sync.Pool{New: func() any {
	o := new(Op)
	o.Bind(o)
	o.Out.Done, o.In.Done = o, o
	return o
}}

// newOp creates an operation. polled is the argument of pending.Operation.Begin.
func newOp(w owner, k Kind, polled bool) *Op {
	o := ops.Get().(*Op)
	o.Begin(polled)
	o.owner, o.kind = w, k
	return o
}

// Start implements pending.Work.
func (o *Op) Start() { o.owner.start(o) }

// Poll implements pending.Work for receives: it polls only the memory in which the peer's
// message arrives.
// Hot path.
func (o *Op) Poll() bool { return o.owner.poll() }

// Blame implements pending.Work.
func (o *Op) Blame(err error) { o.owner.blame(err) }

// Describe implements pending.Work.
func (o *Op) Describe() (op string, rank int) { return o.kind.String(), o.owner.rank() }

// Complete implements message.Completer.
func (o *Op) Complete(tag uint32, n int, err error) { o.owner.complete(o, tag, n, err) }

// Recycle implements pending.Work.
func (o *Op) Recycle() {
	switch o.kind {
	case Send:
		o.Out.Recycle()
	case Recv, RecvAny:
		o.In.Recycle()
	default:
		o.batch, o.recvs, o.call = nil, nil, nil
	}
	ops.Put(o)
}

// Kind returns the kind of o.
func (o *Op) Kind() Kind { return o.kind }

// Refuse returns an operation that was not posted to the pool, and returns its error.
func (o *Op) Refuse(err error) error {
	if err = o.owner.error(o.kind.String(), err); o.recvs != nil {
		o.recvs.fail(err)
	}
	o.Drop()
	return err
}

// empty reports whether o transfers no message, not even one of zero bytes.
func (o *Op) empty() bool {
	return o.kind == SendBatch && len(o.batch.Outs) == 0 || o.kind == RecvSeveral && len(o.recvs.Slots) == 0
}

// pending calls f for each receive of o that has not ended. f may end them.
func (o *Op) pending(f func(in *message.In)) {
	if o.kind != RecvSeveral {
		f(&o.In)
		return
	}
	slots, gen := o.recvs.Slots, o.Gen()&^1 // Then may come meanwhile
	for i := range slots {
		if o.Done() || !o.InFlight(gen) {
			return // the slots are their owner's
		}
		if s := &slots[i]; !s.ended {
			f(&s.In)
		}
	}
}

// fail ends o with an error.
func (o *Op) fail(err error) {
	if o.Err == nil {
		o.Err = o.owner.error(o.kind.String(), err)
	}
	if o.recvs != nil {
		o.recvs.fail(o.Err)
	}
	o.Finish()
}

// received ends o, which has received a message of that tag and size, or failed. err is the
// error of the request.
func (o *Op) received(tag uint32, n int, err error) {
	o.From, o.Tag, o.Value, o.Err = o.In.From, tag, uint64(n), err
	o.Finish()
}

// Batch is a list of messages that are posted at once. The zero value is empty.
type Batch struct {
	Outs []message.Out
	op   *Op
	left int
	n    int // bytes
	why  error
}

// Add appends a message, which may have been used before.
func (b *Batch) Add() *message.Out {
	n := len(b.Outs)
	if n < cap(b.Outs) {
		b.Outs = b.Outs[:n+1]
	} else {
		b.Outs = append(b.Outs, message.Out{})
	}
	o := &b.Outs[n]
	o.Done, o.Urgent = b, false
	return o
}

// Complete implements message.Completer for each of the messages.
func (b *Batch) Complete(_ uint32, n int, err error) {
	if err != nil && b.why == nil {
		b.why = err
	}
	b.n += n
	if b.left--; b.left == 0 {
		b.end()
	}
}

// begin makes the end of b the end of o.
func (b *Batch) begin(o *Op) { b.op, b.left, b.n, b.why = o, len(b.Outs), 0, nil }

// post posts the messages. The last one may end b, which is its owner's then.
// Hot path.
func (b *Batch) post(ch *message.Channel, own *message.Loopback) {
	switch {
	case len(b.Outs) == 0:
		b.end()
	case ch != nil:
		ch.SendAll(b.Outs)
	default:
		outs := b.Outs
		for i := range outs {
			own.Send(&outs[i])
		}
	}
}

// end completes the request.
func (b *Batch) end() {
	o := b.op
	b.op = nil
	o.Complete(0, b.n, b.why)
}

// RecvBatch is a list of receives that are posted at once. The zero value is empty.
type RecvBatch struct {
	Slots []Slot
	op    *Op
	left  int
	bytes int
	why   error
}

// Slot is a receive of a RecvBatch, and what it got.
type Slot struct {
	Buf []byte

	In    message.In
	batch *RecvBatch
	tag   uint32
	n     int
	ended bool
	err   error
}

// Add appends a receive, which may have been used before.
func (b *RecvBatch) Add() *Slot {
	n := len(b.Slots)
	if n < cap(b.Slots) {
		b.Slots = b.Slots[:n+1]
	} else {
		b.Slots = append(b.Slots, Slot{})
	}
	return &b.Slots[n]
}

// begin makes the end of b the end of o.
// Hot path.
func (b *RecvBatch) begin(o *Op) {
	b.op, b.left, b.bytes, b.why = o, len(b.Slots), 0, nil
	for i := range b.Slots {
		s := &b.Slots[i]
		s.batch, s.In.Done, s.In.Buf = b, s, s.Buf
		s.ended, s.err = false, nil
	}
}

// each calls f, which posts a receive, for every receive. The last one may end b, which is
// its owner's then.
// Hot path.
func (b *RecvBatch) each(f func(in *message.In)) {
	slots := b.Slots
	if len(slots) == 0 {
		b.end()
	}
	for i := range slots {
		f(&slots[i].In)
	}
}

// order gives the receives their places.
// Hot path.
func (b *RecvBatch) order(all *message.Shared) {
	for i := range b.Slots {
		b.Slots[i].In.Order = all.Order()
	}
}

// Complete implements message.Completer.
// Hot path.
func (s *Slot) Complete(tag uint32, n int, err error) {
	b := s.batch
	s.tag, s.n, s.ended = tag, n, true
	if s.err = b.op.owner.received(&s.In, n, err); s.err != nil && b.why == nil {
		b.why = s.err
	}
	b.bytes += n
	if b.left--; b.left == 0 {
		b.end()
	}
}

// Got returns what the receive got, once it has ended.
func (s *Slot) Got() (from int, tag uint32, n int, err error) {
	return s.In.From, s.tag, s.n, s.err
}

// end completes the request.
// Hot path.
func (b *RecvBatch) end() {
	o := b.op
	b.op = nil
	o.Value, o.Err = uint64(b.bytes), b.why
	o.Finish()
}

// fail notes why the receives that have not ended never will.
func (b *RecvBatch) fail(err error) {
	for i := range b.Slots {
		if s := &b.Slots[i]; !s.ended {
			s.ended, s.err = true, err
		}
	}
}
