package rma

import (
	"sync"
	"sync/atomic"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/internal/progress"
)

// op is one operation, from the call to the end of its request. The calling
// goroutine fills it; from the hand-over on it is the engine's, until Finish;
// then it is the waiter's, who recycles it, or, if nobody is to wait, goes back
// at once.
type op struct {
	progress.Waiter
	next *op // in the stack of those handed in, then in the peer's list
	peer *Peer
	gen  atomic.Uint32 // which use of the op a Request means

	sge              fabric.SGE
	remote           uint64
	compare, operand uint64
	rkey             uint32
	kind             fabric.Op
	queued           bool   // on the peer's list: not all of it is posted
	loose            bool   // does not take place in the order of the link's requests
	id               uint32 // of its work requests, while it has any
	pending          int32  // work requests posted and not complete; of a flush, operations
	epoch            uint32 // the flushes that wait for it: those of this epoch, and later ones
	more             *more
	out              message.Out // of a send
	in               message.In  // of a receive
	batch            *Batch
	target           Request    // of a cancellation
	resume           *Receiving // of a resumption

	slot  int32  // of the result of an atomic, -1 if none
	tag   uint32 // of the message received
	from  int    // its sender
	value uint64 // what an atomic found; the length of a message
	err   error
	hook  func(error) // called at the end of a detached operation
}

var ops = sync.Pool{New: func() any {
	o := new(op)
	o.out.Done, o.in.Done = o, o
	return o
}}

func newOp(p *Peer, kind fabric.Op) *op {
	o := ops.Get().(*op)
	o.Init()
	if o.peer != p {
		o.peer = p
	}
	o.kind, o.slot, o.sge = kind, -1, fabric.SGE{}
	return o
}

// recycle ends this use of o: requests that mean it are used up.
func (o *op) recycle() {
	o.gen.Add(1)
	o.reuse()
}

// reuse gives o back, whose requests are used up.
func (o *op) reuse() {
	if o.kind >= kindSend {
		o.recycleMessage()
	}
	// What is nil mostly is looked at before it is written: the write would tell
	// the collector.
	if o.err != nil {
		o.err = nil
	}
	if o.hook != nil {
		o.hook = nil
	}
	if o.more != nil {
		o.more.recycle()
		o.more = nil
	}
	ops.Put(o)
}

// recycleMessage forgets the message, the receive, or what else o was about.
func (o *op) recycleMessage() {
	switch o.kind {
	case kindSend:
		o.out.Recycle()
	case kindRecv, kindRecvAny:
		o.in.Recycle()
	default:
		o.batch, o.target, o.resume = nil, Request{}, nil
	}
}

// Finish ends o: who waits is woken. What nobody is to wait for goes back here,
// after its callback.
func (o *op) Finish() {
	if !o.Waiter.Finish() {
		return
	}
	hook, err := o.hook, o.err
	if hook == nil && err != nil {
		o.peer.blame(err)
	}
	o.recycle()
	if hook != nil {
		hook(err)
	}
}

// rank is the one that errors name.
func (o *op) rank() int {
	if o.kind == kindRecvAny {
		return AnyRank
	}
	return o.peer.rank
}

// Operations of this package beyond the links'.
const (
	kindPutSignal fabric.Op = 64 + iota
	kindAwait
	kindFence
	kindFlush
	kindLoop       // an atomic that is a loop of compare-and-swaps
	kindAccumulate // carried out by the target's engine
)

// Messages.
const (
	kindSend fabric.Op = 128 + iota
	kindRecv
	kindBatch
	kindRecvAny
	kindCancel
	kindResume
)

// more is what most operations do without.
type more struct {
	cur onesided.Cursor // of an operation of many pieces; keeps the capacity of its lists
	extra
}

// extra is all of more that a new use must find zero.
type extra struct {
	phase phase // of an operation of several steps
	flag  flag  // of a PutSignal
	word  word  // that a WaitSignal looks at
	loop        // of an atomic that no link has
	user  user  // memory of an operation on memory of any kind
	acc   accumulate
}

var mores = sync.Pool{New: func() any { return new(more) }}

func (m *more) recycle() {
	m.cur.Reset()
	m.extra = extra{}
	mores.Put(m)
}

// extend gives o what most operations do without.
func (o *op) extend() *more {
	if o.more == nil {
		o.more = mores.Get().(*more)
	}
	return o.more
}

// opQueue is a list of operations in order.
type opQueue struct{ head, tail *op }

func (q *opQueue) push(o *op) {
	if q.tail == nil {
		q.head = o
	} else {
		q.tail.next = o
	}
	q.tail = o
}

func (q *opQueue) pop() *op {
	o := q.head
	if q.head = o.next; q.head == nil {
		q.tail = nil
	}
	o.next = nil
	return o
}

func (q *opQueue) len() (n int) {
	for o := q.head; o != nil; o = o.next {
		n++
	}
	return n
}

// inbox is where applications hand operations in: a stack that the owner of
// the engine takes as a whole.
type inbox struct{ top atomic.Pointer[op] }

func (in *inbox) push(o *op) {
	for {
		o.next = in.top.Load()
		if in.top.CompareAndSwap(o.next, o) {
			return
		}
	}
}

// take returns what was handed in, in the order of handing in.
func (in *inbox) take() *op {
	var first *op
	for o := in.top.Swap(nil); o != nil; {
		next := o.next
		o.next = first
		first, o = o, next
	}
	return first
}
