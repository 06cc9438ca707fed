package message

import (
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/rdv"
)

// Completer hears of the end of a message or a receive. It is called by the owner
// of the channel, from within the channel's methods, exactly once.
type Completer interface {
	// Complete ends a message that was sent (n is its length) or a receive (n
	// is the length of the message, tag its tag). The memory is the caller's
	// again. It may call Send and Recv.
	Complete(tag uint32, n int, err error)
}

// Out is a message to send. The caller fills the first part; from Send to
// Completer.Complete it belongs to the channel, which forgets Data. What every message
// needs stands first, on a line and a half of cache.
type Out struct {
	Data       []byte
	LKey, RKey uint32 // of the registered region that Data lies in
	Tag        uint32
	Registered bool // LKey and RKey are valid, and peers may read Data
	Urgent     bool // not to wait for others
	outState
	Done Completer

	next *Out
	seq  uint64
	pos  uint64 // of the ring, behind which the link has read Data
	pin  pin
	want rdv.ID // of the advertised receive that it is written to
}

// Recycle forgets what the caller has filled in, but for Done.
func (o *Out) Recycle() {
	if o.Data != nil {
		o.Data = nil
	}
	o.Registered, o.Urgent = false, false
}

// outState is what a new use of a message must find zero.
type outState struct {
	assigned bool // it is known whether an advertised receive waits for it
	wanted   bool // want does
}

// register registers the memory of o with p, if that was not done.
func (o *Out) register(p *Pins) (err error) {
	if !o.pin.held {
		o.pin, err = p.take(o.Data, sourceRights)
	}
	return err
}

// source returns the memory of o, which is not empty, registered.
func (o *Out) source(p *Pins) (fabric.SGE, error) {
	lkey := o.LKey
	if !o.Registered {
		if err := o.register(p); err != nil {
			return fabric.SGE{}, err
		}
		lkey = o.pin.lkey
	}
	return fabric.NewSGE(o.Data, lkey), nil
}

// outQueue is a list of messages, oldest first.
type outQueue struct {
	head, tail *Out
	n          int
}

func (q *outQueue) push(o *Out) {
	o.next = nil
	if q.tail == nil {
		q.head = o
	} else {
		q.tail.next = o
	}
	q.tail = o
	q.n++
}

func (q *outQueue) pop() *Out {
	o := q.head
	if q.head = o.next; q.head == nil {
		q.tail = nil
	}
	o.next = nil
	q.n--
	return o
}

// remove takes out o, which stands behind before.
func (q *outQueue) remove(before, o *Out) {
	if before == nil {
		q.head = o.next
	} else {
		before.next = o.next
	}
	if q.tail == o {
		q.tail = before
	}
	o.next = nil
	q.n--
}

// drop takes out the first n, behind which next stands.
func (q *outQueue) drop(n int, next *Out) {
	if q.head = next; next == nil {
		q.tail = nil
	}
	q.n -= n
}

// restore puts those of first that are not gone back, in order, before the rest.
// Those that are gone may be in use again: they are not touched.
func (q *outQueue) restore(first []*Out, gone []bool) {
	for i := len(first) - 1; i >= 0; i-- {
		if gone[i] {
			continue
		}
		o := first[i]
		if o.next = q.head; q.head == nil {
			q.tail = o
		}
		q.head = o
		q.n++
	}
}
