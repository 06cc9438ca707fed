package rma

import (
	"sync"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/internal/pending"
)

// kind is what a one-sided operation does.
type kind uint8

const (
	kindPut kind = iota
	kindGet
	kindFetchAdd
	kindCompareSwap
	kindEmulated // an atomic that is a loop of compare-and-swaps
	kindPutSignal
	kindAccumulate // carried out by the target's engine
	kindAwait
	kindFence
	kindFlush
)

// request is the link's operation that requests of k are; none of those from kindAwait on.
func (k kind) request() fabric.Op { return linkOps[k] }

var linkOps = [...]fabric.Op{
	kindPut: fabric.OpWrite, kindGet: fabric.OpRead, kindFetchAdd: fabric.OpFetchAdd, kindCompareSwap: fabric.OpCompareSwap,
	kindEmulated: fabric.OpCompareSwap, kindPutSignal: fabric.OpWrite, kindAccumulate: fabric.OpWrite,
}

// isAtomic reports whether requests of k return what a word held.
func (k kind) isAtomic() bool { return k == kindFetchAdd || k == kindCompareSwap || k == kindEmulated }

// isLoose reports whether k does not take place in the order of the link's requests.
func (k kind) isLoose() bool { return k == kindEmulated || k == kindAccumulate }

// String is how errors name the operation.
func (k kind) String() string { return kindNames[k] }

var kindNames = [...]string{
	kindPut: "put", kindGet: "get", kindFetchAdd: fabric.OpFetchAdd.String(), kindCompareSwap: fabric.OpCompareSwap.String(),
	kindEmulated: "atomic", kindPutSignal: "put-signal", kindAccumulate: "accumulate",
	kindAwait: "wait for a signal", kindFence: "fence", kindFlush: "flush",
}

// op is one one-sided operation.
type op struct {
	pending.Operation
	next *op // in the peer's list
	peer *Peer

	sge              fabric.SGE
	remote           uint64
	compare, operand uint64
	rkey             uint32
	kind             kind
	queued           bool   // on the peer's list: not all of it is posted
	loose            bool   // does not take place in the order of the link's requests
	id               uint32 // of its work requests, while it has any
	pending          int32  // work requests posted and not complete; of a flush, operations
	epoch            uint32 // the flushes that wait for it: those of this epoch, and later ones
	slot             int32  // of the result of an atomic, -1 if none
	more             *more
}

var ops = sync.Pool{New: func() any {
	o := new(op)
	o.Bind(o)
	return o
}}

func newOp(p *Peer, k kind) *op {
	o := ops.Get().(*op)
	o.Begin(false)
	if o.peer != p {
		o.peer = p
	}
	o.kind, o.slot, o.sge = k, -1, fabric.SGE{}
	return o
}

// Start implements pending.Work.
func (o *op) Start() { o.peer.eng.proto.one.start(o) }

// Look implements pending.Work: there is no shorter way to see a completion.
func (o *op) Look() bool { return false }

// Blame implements pending.Work.
func (o *op) Blame(err error) { o.peer.blame(err) }

// Describe implements pending.Work.
func (o *op) Describe() (string, int) { return o.kind.String(), o.peer.rank }

// Recycle implements pending.Work.
func (o *op) Recycle() {
	if o.more != nil {
		o.more.recycle()
		o.more = nil
	}
	ops.Put(o)
}

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
