package initiator

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/seed33544411/rma/fabric"
)

// Complete takes the completion of a request of an operation. It returns false if it is of
// none.
// Hot path.
func (e *Engine) Complete(c *fabric.Completion) bool {
	e.prog.AssertOwned()
	o := e.inflight.find(c.ID & (1<<slotShift - 1))
	if o == nil {
		return false
	}
	q := o.q
	q.inflight--
	q.full = false
	o.pending--
	if s := c.ID >> slotShift; s != 0 {
		q.requests.written(uint8(s - 1))
	}
	if c.Status == fabric.StatusOK {
		if o.slot >= 0 {
			o.Value = binary.NativeEndian.Uint64(q.link.results.bytes(o.slot))
		}
		if o.pending == 0 && !o.queued && (o.kind != Emulated || !o.retry()) {
			o.end()
		}
		return true
	}
	err := q.host.Reason(c)
	o.note(err)
	if o.pending == 0 && !o.queued {
		o.end()
	}
	q.host.Down(err)
	return true
}

// note keeps the first error of o.
func (o *Op) note(err error) {
	if o.Err == nil {
		o.Err = o.q.host.Error(o.kind.String(), err)
	}
}

// EndPart notes the end of one of the Parts of o. Owner's.
func (o *Op) EndPart(err error) {
	o.q.eng.prog.AssertOwned()
	if o.Err == nil {
		o.Err = err
	}
	o.unpend()
}

// unpend notes the end of something that o waits for.
func (o *Op) unpend() {
	if o.pending--; o.pending == 0 && !o.queued {
		o.end()
	}
}

// end finishes o, of which nothing is under way any more.
func (o *Op) end() {
	o.q.eng.prog.AssertOwned()
	if o.id != 0 || o.slot >= 0 {
		o.q.eng.inflight.release(o)
	}
	if o.kind == Fence {
		o.Drop()
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
		o.leaveWord()
	case o.kind == Accumulate:
		q.requests.ended(o)
	case o.more.user.mem != nil:
		o.more.user.unstage(o)
	}
	q.flushes.open--
	q.counts.count(o)
	if q.flushes.list.head == nil {
		o.Finish()
		return
	}
	epoch, err := o.epoch, o.Err
	o.Finish()
	q.flushes.ended(epoch, err)
}

// Counts are the operations with a peer, each counted when it ends.
type Counts struct {
	Puts, Gets, Atomics, Signals, Accumulates uint64 // ended well
	PutBytes, GetBytes                        uint64 // moved by them
	Served                                    uint64 // requests of the peer to accumulate
	AtomicRetries                             uint64 // compare-and-swaps that an emulated atomic had to repeat
	Failed                                    uint64 // operations that failed
	Retries                                   uint64 // times that the link's queue was full
}

// count counts an operation that has ended.
func (c *Counts) count(o *Op) {
	if o.Err != nil {
		c.Failed++
		return
	}
	n := uint64(o.sge.Len)
	if o.more != nil {
		n += o.more.cur.Len()
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
		c.PutBytes += uint64(len(o.more.acc.src))
	case PutSignal:
		c.Signals++
		c.PutBytes += n
	default:
		c.Atomics++
	}
}

// resultSlots is how many atomics may be under way on one link.
const resultSlots = 1024

// slots are words in registered memory of a link that results of atomics come to, and
// flags go out from.
type slots struct {
	region fabric.Region
	free   []int32
}

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

// sge names slot i.
func (s *slots) sge(i int32) fabric.SGE { return fabric.NewSGE(s.bytes(i), s.region.LKey()) }

// take gives o a slot, if there is one. It is kept until o has ended.
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

// inflight are the operations with requests on a link, by work request ID less 1.
type inflight struct {
	ops  []*Op
	free []uint32
}

// id gives o a work request ID. It is kept until o has ended.
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

// find returns the operation of a work request ID, nil if there is none.
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

// flushes are the flushes of a queue, in order. Operations and flushes have the number of
// their epoch, which each flush ends: an operation of one is waited for by the flush that
// ends it, and by later ones.
type flushes struct {
	list      opList
	epoch     uint32                // of operations posted now
	open      int32                 // operations posted, not ended
	forgotten atomic.Pointer[error] // the first of an operation that nobody waits for, since the last flush
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

// begun notes the beginning of an operation.
func (f *flushes) begun(o *Op) {
	o.epoch = f.epoch
	f.open++
}

// ended notes the end of an operation of that epoch in the flushes that wait for it.
func (f *flushes) ended(epoch uint32, err error) {
	for o := f.list.head; o != nil; o = o.next {
		if int32(o.epoch-epoch) < 0 {
			continue // the flush came before
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
