package message

import (
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/rdv"
)

// Completer is notified of the end of a message or a receive. The owner of the channel
// calls it, from within the channel's methods, exactly once.
type Completer interface {
	// Complete ends a message that was sent (n is its length) or a receive (n is the length
	// of the message, tag its tag). The memory belongs to the caller again. Complete may
	// call Send and Recv.
	Complete(tag uint32, n int, err error)
}

// Out is a message to send. The caller sets the exported fields; from Send to
// Completer.Complete it belongs to the channel, which leaves these fields as they are: the
// message may be sent again. The fields that every message needs come first, on one and a
// half cache lines.
type Out struct {
	Data       []byte
	LKey, RKey uint32 // of the registered region that Data lies in
	Tag        uint32
	Registered bool // LKey and RKey are valid, and peers may read Data
	Urgent     bool // send without waiting for others
	Sync       bool // ends when a receive has matched it: it is announced, or written to a receive
	outState
	Done Completer

	next *Out
	seq  uint64
	pos  uint64 // ring position behind which the link has read Data
	pin  pin
	want rdv.ID // the advertised receive that it is written to

	rails *railPins // registrations for further connections
}

// Recycle clears the fields that the caller has set, except Done.
func (o *Out) Recycle() {
	if o.Data != nil {
		o.Data = nil
	}
	o.Registered, o.Urgent, o.Sync = false, false, false
}

// outState is cleared before a message is used again.
type outState struct {
	assigned bool // assign was called
	wanted   bool // want is valid
}

// register registers the memory of o with p, unless that was done.
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

// railKeys returns the keys of the memory of o, registered, on further connections, or nil if there are none.
func (o *Out) railKeys(r Rails) *rdv.RailKeys {
	if o.rails == nil {
		o.rails = &railPins{}
		for i := 1; i < rdv.MaxRails; i++ {
			p := r.Pins(i)
			if p == nil {
				continue
			}
			x, err := p.take(o.Data, sourceRights)
			if err != nil {
				continue // the peer uses the others
			}
			k := &o.rails.keys
			o.rails.pins[i], k.RKeys[i] = x, x.rkey
			k.Has |= 1 << i
		}
	}
	if o.rails.keys.Has == 0 {
		return nil
	}
	return &o.rails.keys
}

// releaseRails releases what railKeys has registered.
func (o *Out) releaseRails(r Rails) {
	for i := range o.rails.pins {
		if x := &o.rails.pins[i]; x.held {
			r.Pins(i).release(x)
		}
	}
	o.rails = nil
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

// remove removes o, whose predecessor is before.
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

// drop removes the first n messages, behind which next stands.
func (q *outQueue) drop(n int, next *Out) {
	if q.head = next; next == nil {
		q.tail = nil
	}
	q.n -= n
}

// restore inserts those of first that are not gone before the rest, in order. Those that
// are gone may be in use again and are not accessed.
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
