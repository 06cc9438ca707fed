package message

import (
	"errors"
	"math"
)

// Recv posts a receive. It may end at once, if an unexpected message matches.
//
// Hot path.
func (r *receiver) Recv(in *In) {
	r.opt.Owner.Assert()
	in.inState, in.after = inState{}, 0
	if in.err != nil {
		in.err = nil
	}
	if r.unexpected.n > 0 && r.takeAside(in) {
		r.flushRendezvous()
		return
	}
	if r.finished {
		r.received(in, 0, 0, r.err)
		return
	}
	r.posted.push(in)
	r.advertised.watch(in)
	in.plain = !in.waits && !in.Peek && in.Use == nil && in.Source == nil && !r.large(in)
}

// Offer passes in the first unexpected message that it matches, as Recv does, but does not
// post in if there is none. A receive with a Source gets all such messages.
func (r *receiver) Offer(in *In) (taken bool) {
	r.opt.Owner.Assert()
	if in.Only != 0 && in.Only != r.from+1 {
		return false
	}
	many := in.Source != nil
	if in.inState = (inState{}); !many {
		in.shared = true
	}
	for r.unexpected.n > 0 && r.takeAside(in) {
		if taken = true; !many {
			break // in belongs to its owner again
		}
	}
	return taken
}

// takeAside passes in the first unexpected message that it matches and that no receive before
// it has left for later.
func (r *receiver) takeAside(in *In) bool {
	for i := r.unexpected.head; i < len(r.unexpected.list); i++ {
		a := &r.unexpected.list[i]
		if !in.takes(a.tag) {
			continue
		}
		if !a.copy && r.broken() != nil { // lost: in takes no later message
			if in.Source != nil || in.shared {
				return false
			}
			r.received(in, a.tag, 0, r.broken())
			return true
		}
		if reserved(r, a, in) {
			continue
		}
		if in.Source != nil {
			if in = receiveFrom(in.Source, r.from, a.tag, int(a.size), a.copy); in == nil {
				return false
			}
		}
		in.From = r.from
		if in.Peek {
			in.peeked(a.tag, int(a.size))
			return true
		}
		if in.Refuse == nil && int(a.size) > len(in.Buf) && (in.Use == nil || !a.copy) {
			r.received(in, a.tag, 0, shortBuffer(int(a.size), in))
			return true
		}
		if !a.copy {
			what := a.announced
			r.unexpected.remove(i)
			r.accept(in, what)
			return true
		}
		data, tag, size := a.data, a.tag, int(a.size)
		r.unexpected.remove(i)
		if in.Use != nil {
			part := [1][]byte{data.bytes}
			r.use(in, tag, part[:])
		} else {
			copy(in.Buf, data.bytes)
		}
		data.release()
		r.received(in, tag, size, nil)
		return true
	}
	return false
}

// reoffer passes in the unexpected messages for which a receive without a Source is posted.
func reoffer(r *receiver) {
	q, before, in := freed(r)
	if in == nil {
		return
	}
	for ; in != nil; q, before, in = freed(r) { // callbacks may post receives
		unlist(r, q, before, in)
		r.takeAside(in)
	}
	r.flushRendezvous()
}

// freed returns the first receive of the first unexpected message that matches one without
// a Source, with its list and its predecessor there.
func freed(r *receiver) (q *inQueue, before, in *In) {
	for i := r.unexpected.head; i < len(r.unexpected.list); i++ {
		a := &r.unexpected.list[i]
		if !a.copy && r.broken() != nil {
			continue // lost
		}
		q, before, in = pick(&r.posted, r.shared, r.from, a.tag)
		for in != nil && q != &r.posted && hidden(r, in, a.seq) {
			q, before, in = pickBehind(in, &r.posted, r.shared, r.from, a.tag)
		}
		if in != nil && in.Source == nil {
			return q, before, in
		}
	}
	return nil, nil, nil
}

// arrive delivers the messages that are next in order. Consecutive announced messages are
// fetched together.
//
// Hot path.
func (r *receiver) arrive() (did bool) {
	if len(r.reads.parked) > 0 {
		r.unpark()
	}
	if r.held.Len() == 0 {
		return r.deliver()
	}
	r.rendezvous.Hold()
	did = r.deliver()
	r.rendezvous.Release()
	return did
}

// deliver passes messages to receives while the next message in order is at the head of one
// of the streams.
//
// Hot path.
func (r *receiver) deliver() (did bool) {
	for r.err == nil {
		switch {
		case r.lie != nil:
			r.fail(r.lie)
		case len(r.advertised.written) > 0 && r.advertised.written[0].seq <= r.next:
			if n := r.advertised.written[0].seq; n < r.next {
				r.fail(&SequenceError{"written messages", n, r.next})
				break
			}
			r.takeWritten()
			did = true
		case r.held.Len() > 0 && r.held.Front().seq <= r.next && r.reads.may():
			if n := r.held.Front().seq; n < r.next {
				r.fail(&SequenceError{"descriptors", n, r.next})
				break
			}
			r.takeHeld()
			did = true
		case takeShort(r), r.takeRing():
			did = true
		default:
			return did
		}
	}
	return did
}

// finish delivers what the peer had sent before the channel failed. Receives get it in
// order; messages that no receive matches are kept for later ones. A message that was only
// announced is lost: it keeps its place, and a receive that would take it gets no later
// message. Not to be called from within a delivery.
func (r *receiver) finish() {
	if r.finished || r.draining || r.err == nil {
		return
	}
	reason := r.err
	r.draining = true
	r.rendezvous.Fail(reason) // answers of the peer still count, and what it announced is held
	came, lost := r.order.end(&r.unexpected)
	r.lost = append(r.lost, lost...)
	for _, in := range came {
		r.over(in, in.tag, int(in.size), nil)
	}
	if r.lie == nil && !errors.Is(reason, ErrPeer) && !errors.Is(reason, ErrClosed) && r.ring.Drain() {
		r.err, r.unexpected.limit = nil, math.MaxInt // what is left is bounded by the ring
		r.partLost()
		r.deliver()
		r.err = reason
		r.endBacklog()
	}
	r.draining, r.finished = false, true
	r.advertised.written, r.advertised.waiting = nil, 0
	for _, in := range r.lost {
		r.endLost(in)
	}
	r.lost = nil
	for r.posted.n > 0 {
		r.received(r.posted.pop(), 0, 0, reason)
	}
}

// forget ends the receives that were being fetched, which nothing writes to any longer, and
// drops the unexpected messages.
func (r *receiver) forget() {
	for h, in := range r.fetching {
		delete(r.fetching, h)
		r.reads.end(in)
		r.endLost(in)
	}
	r.unexpected.clear()
}
