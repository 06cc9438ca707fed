package rma

import (
	"sync"

	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/pending"
)

// messageKind is what an operation of the message side does.
type messageKind uint8

const (
	kindSend messageKind = iota
	kindBatch
	kindRecv
	kindRecvAny
	kindCancel
	kindResume
)

// String is how errors name the operation.
func (k messageKind) String() string { return messageNames[k] }

var messageNames = [...]string{
	kindSend: "send", kindBatch: "batch", kindRecv: "receive", kindRecvAny: "receive", kindCancel: "cancel", kindResume: "resume",
}

// messageOp is one operation of the message side. Apart from the peers' life and counters
// it needs nothing of this package that does not belong to messages.
type messageOp struct {
	pending.Operation
	next *messageOp // in the list of what waits for a channel
	peer *Peer
	kind messageKind

	out    message.Out // of a send
	in     message.In  // of a receive
	batch  *Batch
	target Request    // of a cancellation
	resume *Receiving // of a resumption

	tag  uint32 // of the message received
	from int    // its sender
}

var messageOps = sync.Pool{New: func() any {
	o := new(messageOp)
	o.Bind(o)
	o.out.Done, o.in.Done = o, o
	return o
}}

// newMessage begins a message, a batch or a receive.
func (p *Peer) newMessage(k messageKind) *messageOp {
	o := messageOps.Get().(*messageOp)
	o.Begin(k == kindRecv && p.shows)
	if o.peer != p {
		o.peer = p
	}
	o.kind = k
	return o
}

// Start implements pending.Work.
func (o *messageOp) Start() { o.peer.eng.proto.hub.start(o) }

// Look implements pending.Work for receives: a look at where the message of the peer
// comes to, and nowhere else.
// Hot path.
func (o *messageOp) Look() bool {
	ch := o.peer.talk.ch
	return ch != nil && ch.Poll()
}

// Blame implements pending.Work.
func (o *messageOp) Blame(err error) { o.peer.one.Blame(err) }

// Describe implements pending.Work.
func (o *messageOp) Describe() (op string, rank int) {
	if o.kind == kindRecvAny {
		return o.kind.String(), AnyRank
	}
	return o.kind.String(), o.peer.rank
}

// Recycle implements pending.Work.
func (o *messageOp) Recycle() {
	switch o.kind {
	case kindSend:
		o.out.Recycle()
	case kindRecv, kindRecvAny:
		o.in.Recycle()
	default:
		o.batch, o.target, o.resume = nil, Request{}, nil
	}
	messageOps.Put(o)
}

// fail ends o with an error.
func (o *messageOp) fail(err error) {
	o.peer.counts.Failed++
	if o.Err == nil {
		op, rank := o.Describe()
		o.Err = &PeerError{Rank: rank, Op: op, Err: err}
	}
	o.Finish()
}

// dropMessage refuses an operation that has been begun.
func (p *Peer) dropMessage(o *messageOp, err error) Request {
	op, rank := o.Describe()
	o.Drop()
	return Request{eng: p.eng, err: &PeerError{Rank: rank, Op: op, Err: err}}
}

// messageQueue is a list of operations in order.
type messageQueue struct{ head, tail *messageOp }

func (q *messageQueue) push(o *messageOp) {
	if q.tail == nil {
		q.head = o
	} else {
		q.tail.next = o
	}
	q.tail = o
}

func (q *messageQueue) pop() *messageOp {
	o := q.head
	q.remove(o)
	return o
}

// remove takes o off the list; false if it is not there.
func (q *messageQueue) remove(o *messageOp) bool {
	var before *messageOp
	for x := q.head; x != nil; before, x = x, x.next {
		if x != o {
			continue
		}
		if before == nil {
			q.head = o.next
		} else {
			before.next = o.next
		}
		if q.tail == o {
			q.tail = before
		}
		o.next = nil
		return true
	}
	return false
}

func (q *messageQueue) len() (n int) {
	for o := q.head; o != nil; o = o.next {
		n++
	}
	return n
}
