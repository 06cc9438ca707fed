package rma

import (
	"encoding/binary"

	"github.com/seed33544411/rma/fabric"
)

// complete takes the completion of a request of an operation; false if it is of none.
// Hot path.
func (t *initiator) complete(link int, c *fabric.Completion) bool {
	id := c.ID & (1<<slotShift - 1)
	if id == 0 || id > uint64(len(t.inflight)) || t.inflight[id-1] == nil {
		return false
	}
	o := t.inflight[id-1]
	p := o.peer
	p.inflight--
	p.full = false
	o.pending--
	if o.kind == kindAccumulate {
		p.asks.written(uint8(c.ID >> slotShift))
	}
	if c.Status == fabric.StatusOK {
		if o.slot >= 0 {
			o.Value = binary.NativeEndian.Uint64(t.slots[link].bytes(o.slot))
		}
		if o.pending == 0 && !o.queued && (o.kind != kindEmulated || !t.retry(o)) {
			t.end(o)
		}
		return true
	}
	err := c.Err()
	if c.Status == fabric.StatusFlushed {
		p.reportDown(nil)
		err = because(err, p.down)
	}
	t.note(o, err)
	if o.pending == 0 && !o.queued {
		t.end(o)
	}
	p.downWith(err)
	return true
}

// note keeps the first error of o.
func (t *initiator) note(o *op, err error) {
	if o.Err == nil {
		o.Err = &PeerError{Rank: o.peer.rank, Op: o.kind.String(), Err: err}
	}
}

// end finishes a one-sided operation of which nothing is under way any more.
func (t *initiator) end(o *op) {
	if o.id != 0 || o.slot >= 0 {
		t.forget(o)
	}
	if o.kind == kindFence {
		o.Drop()
		return
	}
	p := o.peer
	if o.loose {
		o.loose = false
		p.loose--
	}
	switch {
	case o.more == nil:
	case o.more.head:
		t.endLoop(o)
	case o.kind == kindAccumulate:
		t.endReduce(o)
	case o.more.user.mem != nil:
		t.unstage(o)
	}
	p.open--
	if o.Err != nil {
		p.counts.Failed++
	} else {
		o.count(&p.counts)
	}
	if p.flushes.head == nil {
		o.Finish()
		return
	}
	epoch, err := o.epoch, o.Err
	o.Finish()
	t.flushed(p, epoch, err)
}

// count counts an operation that ended well.
func (o *op) count(c *Counts) {
	n := uint64(o.sge.Len)
	if o.more != nil {
		n += o.more.cur.Len()
	}
	switch o.kind {
	case kindPut:
		c.Puts++
		c.PutBytes += n
	case kindGet:
		c.Gets++
		c.GetBytes += n
	case kindAccumulate:
		c.Accumulates++
		c.PutBytes += uint64(len(o.more.acc.src))
	case kindPutSignal:
		c.Signals++
		c.PutBytes += n
	default:
		c.Atomics++
	}
}
