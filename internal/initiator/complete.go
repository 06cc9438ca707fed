package initiator

import (
	"encoding/binary"

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
	if o.kind == Accumulate {
		q.requests.written(uint8(c.ID >> slotShift))
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
