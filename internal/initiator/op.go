package initiator

import (
	"fmt"
	"sync"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/internal/owned"
	"github.com/seed33544411/rma/mr"
)

var ops = sync.Pool{New: func() any {
	o := new(Op)
	o.Bind(o)
	return o
}}

// New starts an operation with the queue's peer. Queue.Post posts it, Drop discards it. Any
// goroutine may call it.
// Hot path.
func New(q *Queue, k Kind) *Op {
	o := ops.Get().(*Op)
	if owned.On {
		o.assertIdle()
	}
	o.Begin(false)
	if o.q != q {
		o.q = q
	}
	o.kind, o.slot, o.sge = k, -1, fabric.SGE{}
	return o
}

// assertIdle panics, with the tag rmadebug, if o has something left of its last use: the
// engine has ended it too early, or twice.
func (o *Op) assertIdle() {
	if o.Err != nil || o.pending != 0 || o.id != 0 || o.loose || o.next != nil {
		panic(fmt.Sprintf("initiator: unused %v with rank %d is in use: %d pending, work request ID %d, error %v", o.kind, o.q.rank, o.pending, o.id, o.Err))
	}
}

// assertLive panics, with the tag rmadebug, if o has ended.
func (o *Op) assertLive() {
	if owned.On && (o.Done() || o.pending < 0) {
		panic(fmt.Sprintf("initiator: %v with rank %d has ended: %d pending, error %v", o.kind, o.q.rank, o.pending, o.Err))
	}
}

// note keeps the first error of o.
func (o *Op) note(err error) {
	o.assertLive()
	if o.Err == nil {
		o.Err = o.q.host.Error(o.kind.String(), err)
	}
}

// Kind returns the kind of o.
func (o *Op) Kind() Kind { return o.kind }

// Local sets the local memory: one piece that one request can move.
func (o *Op) Local(sge fabric.SGE) { o.sge = sge }

// Remote sets the peer's memory.
func (o *Op) Remote(addr uint64, rkey uint32) { o.remote, o.rkey = addr, rkey }

// Divide lets the engine divide o, a put or a get with Local and Remote, over the rails. With
// Memory the engine sets the LKeys.
func (o *Op) Divide(keys *[mr.MaxRails]PartKeys) {
	o.extend().divided.keys = *keys
	o.divides = true
}

// DivideLong is Divide for an o with a Cursor over one piece on each side, at addr and at
// that of sge, that takes several requests: it is divided in slices, one after the other, of
// what one request can move.
func (o *Op) DivideLong(keys *[mr.MaxRails]PartKeys, sge fabric.SGE, addr uint64) {
	o.Divide(keys)
	o.remote = addr
	o.slices(sge.Addr)
}

// DividePieces is Divide for an o with a Cursor whose pieces on each side have the same keys: each
// piece is divided, or sent whole over the best rail, in no order among them.
func (o *Op) DividePieces(keys *[mr.MaxRails]PartKeys) {
	o.Divide(keys)
	o.more.split = true
}

// slices divides o, which has a Cursor, in slices of the local memory from addr on.
func (o *Op) slices(addr uint64) {
	o.sge = fabric.SGE{Addr: addr}
	o.more.rest = o.more.cur.Len()
	o.slice()
}

// maxSlice bounds the slices of DivideLong, whose lengths are kept in 32 bits.
const maxSlice = 1 << 30

// slice sets o to its next slice.
func (o *Op) slice() {
	d := &o.more.divided
	o.sge.Addr += uint64(o.sge.Len)
	o.remote += uint64(o.sge.Len)
	o.sge.Len = uint32(min(d.rest, o.q.max, maxSlice))
	d.rest -= uint64(o.sge.Len)
	d.plan, d.probe = false, false
	d.long = true
}

// Operands sets the operands of an atomic of the link.
func (o *Op) Operands(compare, operand uint64) { o.compare, o.operand = compare, operand }

// Parts makes the request of o wait for n other parts as well. EndPart reports the end of each.
// Flushes wait for o alone. Before Queue.Post.
func (o *Op) Parts(n int) { o.extend().others = n }

// Cursor describes transfers of several pieces or requests, instead of Local and Remote.
func (o *Op) Cursor() *onesided.Cursor { return &o.extend().cur }

// NeedsAll makes o need the memory of all local pieces, which the caller adds to the list.
func NeedsAll(o *Op) *mr.Registrations {
	m := &o.extend().mems
	o.Needs(m)
	return m
}

// Memory sets local memory of any kind, instead of Local. It belongs to the engine until o
// is complete.
func (o *Op) Memory(mem []byte) { o.extend().user.mem = mem }

// Apart leaves o, which has Memory, out of Queue.Counts.
func (o *Op) Apart() { o.more.apart = true }

// Emulate sets the function of an Emulated atomic.
func (o *Op) Emulate(rmw onesided.RMW) { o.extend().rmw = rmw }

// Flag sets what a PutSignal does to the word at addr: it sets the word to v, or, with add,
// adds v to it. Call it after the data, if any, has been set.
func (o *Op) Flag(addr uint64, rkey uint32, add bool, v uint64) {
	x := o.extend()
	x.flag = flag{addr: addr, rkey: rkey, add: add}
	o.operand = v
	if o.sge.Len == 0 && x.cur.Len() == 0 {
		x.phase = phaseFlag
	}
}

// Combine sets what an Accumulate does with src, which belongs to the engine until o is
// complete. There is at least one element.
func (o *Op) Combine(src []byte, req onesided.Request) {
	a := &o.extend().acc
	a.src, a.size, a.req, a.n = src, len(src), req, uint64(len(src))
}

// CombinePieces makes an Accumulate combine the pieces of Cursor, whose local side is in
// src, or in old for a NoOp, and whose remote side lies in the n bytes from addr on; all
// are multiples of the element's size. Previous elements are stored to old, if how fetches
// them. Both slices belong to the engine until o is complete.
func (o *Op) CombinePieces(how onesided.Combining, src, old []byte, addr, n uint64) {
	a := &o.extend().acc
	a.src, a.old, a.how, a.n = src, old, how, n
	o.remote = addr
}

// Word sets the condition that an Await waits for: the word of integer type t at mem meets
// cond with v. mem lies in the memory of reg, which is held for o. If from is not nil, the
// wait ends with its connection.
func (o *Op) Word(reg *mr.Registration, mem []byte, t onesided.Type, cond onesided.Cond, v uint64, from *Queue) {
	o.extend().await = awaited{reg: reg, mem: mem, of: t, cond: cond, from: from}
	o.operand = v
}

// Poll implements pending.Work. There is no shorter way to detect a completion.
func (o *Op) Poll() bool { return false }

// Blame implements pending.Work.
func (o *Op) Blame(err error) { o.q.Blame(err) }

// Describe implements pending.Work.
func (o *Op) Describe() (op string, rank int) { return o.kind.String(), o.q.rank }

// Recycle implements pending.Work.
func (o *Op) Recycle() {
	if o.more != nil {
		o.more.recycle()
		o.more, o.divides = nil, false
	}
	ops.Put(o)
}

// uses reports whether o uses local memory in [lo, hi).
func (o *Op) uses(lo, hi uint64) bool {
	a := o.sge.Addr
	return a < hi && lo < a+uint64(o.sge.Len) || o.more != nil &&
		(o.more.cur.Uses(lo, hi) || fabric.Overlaps(o.more.user.mem, lo, hi) || fabric.Overlaps(o.more.acc.src, lo, hi) || fabric.Overlaps(o.more.acc.old, lo, hi))
}

// after returns the phase of o that follows ph.
func (ph phase) after(o *Op) phase {
	switch {
	case o.kind != PutSignal:
		return phaseEnd
	case ph == phaseData:
		return phaseFlag
	case ph == phaseFlag && o.more.flag.add && !o.q.wakes:
		return phaseNotify // an atomic carries no notification
	}
	return phaseEnd
}

var mores = sync.Pool{New: func() any { return new(more) }}

func (m *more) recycle() {
	m.cur.Reset()
	m.mems.Reset()
	m.extra = extra{}
	mores.Put(m)
}

// extend returns o.more, which it creates if necessary.
func (o *Op) extend() *more {
	if o.more == nil {
		o.more = mores.Get().(*more)
	}
	return o.more
}
