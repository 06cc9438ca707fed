package initiator

import (
	"encoding/binary"
	"slices"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/onesided"
)

// Complete handles the completion of a request. It returns false if the request belongs to
// no operation.
// Hot path.
func (e *Engine) Complete(c *fabric.Completion) bool {
	e.prog.AssertOwned()
	o := e.inflight.find(c.ID & (1<<slotShift - 1))
	if o == nil {
		return false
	}
	q := o.q
	var err error
	if c.Status != fabric.StatusOK && !(c.Status == fabric.StatusLostResult && o.kind == PutSignal) { // a signal needs no result
		err = q.host.Reason(c) // may end the connection: o still waits for this completion
	}
	q.inflight--
	q.full = false
	o.pending--
	if s := c.ID >> slotShift; s != 0 {
		q.requests.written(uint8(s - 1))
	}
	if err == nil {
		if o.slot >= 0 {
			o.Value = binary.NativeEndian.Uint64(q.link.results.bytes(o.slot))
		}
		if o.pending == 0 && !o.queued && (o.kind != Emulated || !o.retry()) {
			o.end()
		}
		return true
	}
	o.note(err)
	if o.pending == 0 && !o.queued {
		o.end()
	}
	if !c.Status.Alone() { // the connection continues
		q.host.Down(err)
	}
	return true
}

// EndPart records the end of one of the Parts of o. Owner's.
func (o *Op) EndPart(err error) {
	o.q.eng.prog.AssertOwned()
	o.keep(err)
	if o.more.others--; o.more.others == 0 && o.more.ended {
		o.Finish()
	}
}

// keep keeps the first error of o and of what belongs to it.
func (o *Op) keep(err error) {
	if o.Err == nil {
		o.Err = err
	}
}

// unpend records the end of one request of o.
func (o *Op) unpend() {
	if o.pending--; o.pending == 0 && !o.queued {
		o.end()
	}
}

// posted records that o is posted completely, and ends it if none of its requests is in
// flight.
func (o *Op) posted() {
	if o.queued = false; o.pending == 0 {
		o.end()
	}
}

// end finishes o, which has nothing in flight any longer.
func (o *Op) end() {
	o.q.eng.prog.AssertOwned()
	o.assertLive()
	if o.id != 0 || o.slot >= 0 {
		o.q.eng.inflight.release(o)
	}
	if o.kind == Fence {
		o.Drop()
		return
	}
	if o.more != nil && o.more.whole != nil {
		w, err := o.more.whole, o.Err
		o.Drop()
		w.keep(err)
		w.unpend()
		return
	}
	q := o.q
	if o.loose {
		o.loose = false
		q.loose--
	}
	switch {
	case o.more == nil:
	case o.more.head:
		for l := o.leaveWord(); l.head != nil; {
			l.spoil(q.down)
		}
	case o.kind == Accumulate:
		q.requests.ended(o)
	case o.more.user.mem != nil:
		o.more.user.unstage(o)
	}
	q.flushes.open--
	if o.more == nil || !o.more.apart {
		q.counts.count(o)
	}
	epoch, err := o.epoch, o.Err
	if o.more != nil && o.more.others > 0 {
		o.more.ended = true
	} else {
		o.Finish()
	}
	if q.flushes.list.head != nil {
		q.flushes.ended(epoch, err)
	}
}

// spoil ends the first operation of the list, which the link cannot execute.
func (l *opList) spoil(err error) {
	o := l.pop()
	o.note(err)
	o.posted()
}

// written records the completion of the write to a slot.
func (r *requester) written(s uint8) {
	if a := &r.slots[s]; a.write {
		a.write = false
		if a.o == nil {
			r.free |= 1 << s
		}
	}
}

// ended records that no request of an accumulate is in flight any longer.
func (r *requester) ended(o *Op) {
	if o.more.acc.begun {
		o.more.acc.begun = false
		r.begun = slices.DeleteFunc(r.begun, func(x *Op) bool { return x == o })
	}
}

// count counts an operation that has ended.
func (c *Counts) count(o *Op) {
	if o.Err != nil {
		c.Failed++
		return
	}
	n := uint64(o.sge.Len)
	if o.more != nil && o.more.cur.Len() > 0 {
		n = o.more.cur.Len()
	}
	switch o.kind {
	case Put:
		c.Puts++
		c.PutBytes += n
	case Get:
		c.Gets++
		c.GetBytes += n
	case Accumulate:
		c.Accumulates++
		a := &o.more.acc
		c.GetBytes += uint64(len(a.old))
		switch {
		case a.how.Type == 0:
			c.PutBytes += uint64(a.size)
		case a.how.Op != onesided.NoOp:
			c.PutBytes += n
		}
	case PutSignal:
		c.Signals++
		c.PutBytes += n
	default:
		c.Atomics++
	}
}

// resultSlots is the number of atomics that may be in flight on one link.
const resultSlots = 1024

func newSlots(l fabric.Link) (slots, error) {
	r, err := l.Alloc(8*resultSlots, fabric.AccessLocalWrite)
	if err != nil {
		return slots{}, err
	}
	s := slots{region: r}
	for i := range int32(resultSlots) {
		s.free = append(s.free, resultSlots-1-i)
	}
	return s, nil
}

func (s *slots) bytes(i int32) []byte { return s.region.Bytes()[8*i : 8*i+8] }

// sge returns the scatter/gather entry of slot i.
func (s *slots) sge(i int32) fabric.SGE { return fabric.NewSGE(s.bytes(i), s.region.LKey()) }

// take assigns a slot to o, if one is free. o keeps it until it ends.
func (s *slots) take(o *Op) bool {
	if o.slot >= 0 {
		return true
	}
	n := len(s.free)
	if n == 0 {
		return false
	}
	o.slot = s.free[n-1]
	s.free = s.free[:n-1]
	return true
}

// id assigns a work request ID to o. o keeps it until it ends.
func (f *inflight) id(o *Op) uint64 {
	if o.id == 0 {
		if len(f.free) == 0 {
			f.ops = append(f.ops, nil)
			f.free = append(f.free, uint32(len(f.ops)))
		}
		o.id = f.free[len(f.free)-1]
		f.free = f.free[:len(f.free)-1]
		f.ops[o.id-1] = o
	}
	return uint64(o.id)
}

// find returns the operation with a work request ID, nil if there is none.
func (f *inflight) find(id uint64) *Op {
	if id == 0 || id > uint64(len(f.ops)) {
		return nil
	}
	return f.ops[id-1]
}

// release frees the ID and the slot of o.
func (f *inflight) release(o *Op) {
	if o.id != 0 {
		f.ops[o.id-1] = nil
		f.free = append(f.free, o.id)
		o.id = 0
	}
	if o.slot >= 0 {
		s := &o.q.link.results
		s.free = append(s.free, o.slot)
		o.slot = -1
	}
}

// start begins a flush.
func (f *flushes) start(o *Op) {
	if f.open == 0 {
		f.end(o)
		return
	}
	o.pending = f.open
	o.epoch = f.epoch
	f.epoch++
	f.list.push(o)
}

// begun records the start of an operation.
func (f *flushes) begun(o *Op) {
	o.epoch = f.epoch
	f.open++
}

// ended records the end of an operation of the given epoch in the flushes that wait for it.
func (f *flushes) ended(epoch uint32, err error) {
	for o := f.list.head; o != nil; o = o.next {
		if int32(o.epoch-epoch) < 0 {
			continue // the flush precedes the operation
		}
		o.pending--
		if o.Err == nil {
			o.Err = err
		}
	}
	for f.list.head != nil && f.list.head.pending == 0 {
		f.end(f.list.pop())
	}
}

func (f *flushes) end(o *Op) {
	if err := f.forgotten.Swap(nil); err != nil && o.Err == nil {
		o.Err = *err
	}
	if o.Err == nil && o.q.down != nil {
		o.note(o.q.down)
	}
	o.Finish()
}
