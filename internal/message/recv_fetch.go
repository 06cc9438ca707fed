package message

import (
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/rdv"
	"github.com/seed33544411/rma/scatter"
)

// recvHandler is what the rendezvous channel calls of a receiver.
type recvHandler receiver

// Match takes a message whose turn has come and for which there is a receive;
// others are held until then. Neighbours that are taken here are fetched together.
func (h *recvHandler) Match(m rdv.Incoming) ([]fabric.SGE, rdv.Verdict) {
	r := (*receiver)(h)
	want := r.next
	if r.held.Len() > 0 {
		want = r.held.Back().seq + 1
	}
	if m.Form != scatter.FormSequence || m.Pos < want {
		r.refuse(&SequenceError{"descriptors", m.Pos, want})
		return nil, rdv.Refuse
	}
	a := announced{seq: m.Pos, tag: m.Tag, size: m.Size, handle: m.Handle}
	if m.Pos != r.next || r.held.Len() > 0 || r.broken() != nil {
		r.held.Push(a)
		return nil, rdv.Later
	}
	r.next++
	in := r.match(a.tag, int(a.size), false)
	if in == nil {
		r.unexpected.announce(a)
		return nil, rdv.Later
	}
	r.advertised.announcedTo(in)
	dst, err := r.prepare(in, a)
	if err != nil {
		r.received(in, a.tag, 0, err)
		return nil, rdv.Refuse // the sender hears of it
	}
	r.startFetching(in, &a)
	return dst, rdv.Take
}

// takeHeld delivers the message at the head of the announced ones, whose turn
// it is.
func (r *receiver) takeHeld() bool {
	a := *r.held.Front()
	if r.draining {
		r.held.Pop()
		r.bury(a.seq, a.tag)
		return true
	}
	in := r.match(a.tag, int(a.size), false)
	if in == nil {
		r.unexpected.announce(a)
	} else {
		r.advertised.announcedTo(in)
		r.accept(in, a)
	}
	r.held.Pop()
	r.next++
	return true
}

// accept has a message fetched into a receive.
func (r *receiver) accept(in *In, a announced) {
	dst, err := r.prepare(in, a)
	if err != nil {
		_, _ = r.rendezvous.Refuse(a.handle) // the sender hears of it
		r.received(in, a.tag, 0, err)
		return
	}
	r.startFetching(in, &a)
	if err := r.rendezvous.Accept(a.handle, dst); err != nil && r.fetching[a.handle] == in {
		delete(r.fetching, a.handle)
		r.ended(in, a.tag, 0, err)
	}
}

// prepare returns the pieces of in for a message; valid until the next call.
func (r *receiver) prepare(in *In, a announced) ([]fabric.SGE, error) {
	in.tag, in.size, in.seq = a.tag, a.size, a.seq
	if in.Refuse != nil {
		return nil, in.Refuse
	}
	if a.size == 0 {
		return nil, nil
	}
	s, err := in.destination(r.pins, int(a.size))
	r.dst[0] = s
	return r.dst[:], err
}

// Received ends a message of the peer's: fetched or failed.
func (h *recvHandler) Received(m rdv.Incoming, err error) {
	r := (*receiver)(h)
	in := r.fetching[m.Handle]
	if in != nil {
		delete(r.fetching, m.Handle)
		r.ended(in, m.Tag, int(m.Size), err)
		return
	}
	// Failed before a receive asked for it. Where the channel has ended, the receive that
	// asks for it later hears of it.
	if r.broken() == nil {
		r.refuse(err)
	}
}

// startFetching notes that in is being fetched as a.
func (r *receiver) startFetching(in *In, a *announced) {
	r.fetching[a.handle] = in
	in.late = in.Use != nil
	if !in.loose {
		r.order.add(in, false)
	}
}

// ended ends a receive that was being fetched.
func (r *receiver) ended(in *In, tag uint32, n int, err error) {
	if err != nil && r.broken() != nil {
		r.lose(in)
		return
	}
	r.received(in, tag, n, err)
}
