package initiator

import "sync/atomic"

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
