package message

import (
	"math"
	"slices"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/rdv"
)

// receiver is the receiving direction of a channel: it merges the streams into the order of
// sending, matches messages to receives, and ends receives in the order of their messages.
// Its other methods lie in the files of the ways that messages travel:
//
//	recv_deliver.go    merging the streams, receives of unexpected messages, the end
//	recv_ring.go       from the ring: single, gathered, or in coalesced runs
//	recv_rest.go       left in the ring for receives to come
//	recv_fetch.go      announced by the peer, to be fetched
//	recv_advertise.go  written by the peer to receives that were advertised
type receiver struct {
	*streams
	from   int     // Options.From
	shared *Shared // Options.Shared
	stats  RecvStats

	// Receives of this channel alone that no message has taken, and the advertised ones.
	posted     inQueue
	advertised advertised

	// Messages. next is the number of the next message in order. held are announced
	// messages that wait for their turn, by rising number, bounded by rdv. unexpected are
	// messages whose turn has come and that no receive matched. gather is the one at the
	// head of the ring, delivered in part.
	next       uint64
	held       heldQueue
	unexpected unexpected
	gather     openGather
	rest       rest

	// Receives that a message has taken: fetching are those that are being fetched, reads
	// bounds their number; order are those that may not end yet.
	fetching map[rdv.Handle]*In
	reads    reads
	order    order

	// The end. draining: messages that came before the end are being delivered; finished:
	// all of them are. lost are receives whose message was lost, until draining ends.
	draining bool
	finished bool
	lost     []*In

	// Scratch: the parts of a message in place, messages that are used in place, the size
	// of one alone, the memory of one that is fetched.
	parts [3][]byte
	run   Run
	one   [1]byte
	dst   [1]fabric.SGE
}

// RecvStats counts what a channel received.
type RecvStats struct {
	Received             uint64 // messages received without an error
	Adverts, LateAdverts uint64 // receives advertised; of these, answered as late
	Unexpected           uint64 // messages copied because no receive matched
}

// open prepares a receiver to be connected.
func (r *receiver) open(shared *streams) {
	o := &shared.opt
	r.streams, r.from, r.shared = shared, o.From, o.Shared
	r.next, r.fetching = 1, map[rdv.Handle]*In{}
	r.advertised.streams = shared
	r.unexpected.limit = max(o.Unexpected, 0)
}

// Waits reports whether a message is known to be in the ring that receives may take, or a
// receive is large enough to be advertised and is not. Where either end can carry a transfer
// it suffices to look for the announcement, unless both ends would copy the message: a sender
// that finds another advert writes in its call, although it may compute afterwards while the
// receiver waits.
//
// Hot path.
func (r *receiver) Waits() bool {
	return r.posted.head != nil && (r.gather.open || r.ring.Found()) || r.advertised.waiting > 0 && r.advertised.dirty && (r.advertised.urgent || r.rendezvous.Urgent())
}

// Cancel withdraws a receive that was posted and has not ended. It ends with ErrCanceled,
// or with a message that takes it before: at once, or when the peer, which may be about to
// write there, has answered.
func (r *receiver) Cancel(in *In) {
	r.opt.Owner.Assert()
	switch {
	case in.matched || r.err != nil || in.ad == adSettled: // it ends by itself
	case in.ad == adOpen:
		in.cancel, in.owed = true, true
		if err := r.rendezvous.Revoke(in.adID); err != nil {
			r.fail(err)
		}
	case r.posted.cancel(in):
		r.advertised.unwatch(in)
		r.received(in, 0, 0, ErrCanceled)
	}
}

// match removes the receive for a message of the given tag and size from its list. It
// returns nil if there is none. Receives whose buffer is too short end with an error;
// receives that use a message of the ring in place need no buffer.
func (r *receiver) match(tag uint32, size int, ring bool) *In {
	for {
		q, before, in := r.pick(tag)
		if in == nil {
			return nil
		}
		if in.Source != nil {
			return receiveFrom(in.Source, r.from, tag, size, ring)
		}
		unlist(r, q, before, in)
		if in.From = r.from; in.Peek {
			in.peeked(tag, size)
			continue
		}
		in.matched = true
		if size <= len(in.Buf) || in.Use != nil && ring {
			return in
		}
		r.received(in, tag, 0, shortBuffer(size, in))
	}
}

// unlist removes in, which gets a message, from its list.
func unlist(r *receiver, q *inQueue, before, in *In) {
	if in.shared = q != &r.posted; in.shared {
		r.shared.changed++
	}
	q.remove(before, in)
	r.advertised.unwatch(in)
}

// pick finds the receive for a message of tag. While the channel drains it skips receives
// that would have taken a lost message.
func (r *receiver) pick(tag uint32) (q *inQueue, before, in *In) {
	q, before, in = pick(&r.posted, r.shared, r.from, tag)
	for r.draining && in != nil && q != &r.posted && r.unexpected.hides(in, math.MaxUint64) {
		q, before, in = pickBehind(in, &r.posted, r.shared, r.from, tag)
	}
	return q, before, in
}

// reserved reports whether a receive before in has left the unexpected message a for later.
func reserved(r *receiver, a *aside, in *In) bool {
	o := r.shared.owner(nil, in, r.from, a.tag)
	for o != nil && hidden(r, o, a.seq) {
		o = r.shared.owner(o, in, r.from, a.tag)
	}
	return o != nil
}

// hidden reports whether in, of the Shared, gets no message from number seq on, because it
// would have taken one before that is lost.
func hidden(r *receiver, in *In, seq uint64) bool {
	return r.broken() != nil && r.unexpected.hides(in, seq)
}

// use passes a message to a receive where it lies, or copies it if the receive must wait
// for its turn.
func (r *receiver) use(in *In, tag uint32, parts [][]byte) {
	in.tag = tag
	if len(r.order.matched) > 0 && !in.loose && r.order.waits(in) {
		in.Buf, in.late = slices.Concat(parts...), true
		return
	}
	in.Use(tag, parts)
}

// received ends a receive, now or when the peer has answered its advertisement, because
// until then the peer may write there.
func (r *receiver) received(in *In, tag uint32, n int, err error) {
	if in.ad == adOpen {
		in.tag, in.size, in.err, in.ended, in.matched, in.owed = tag, uint32(n), err, true, true, true
		if err == nil && !in.listed && !in.loose && r.order.waits(in) {
			listMatched(r, in, false) // here is set when the peer has answered
		}
		if r.err == nil {
			r.rendezvous.Nudge() // a peer that has sent all its messages may not poll any longer
			r.unflushed = true
		}
		return
	}
	if in.tag = tag; len(r.order.matched) > 0 && !in.loose {
		r.inTurn(in, n, err)
		return
	}
	r.over(in, tag, n, err)
}

// inTurn ends a receive when the receives before it that compete with it have ended, then
// those that waited for it.
func (r *receiver) inTurn(in *In, n int, err error) {
	in.size = uint32(n)
	r.pins.release(&in.pin) // those before it may need it, to be fetched
	switch {
	case in.listed && err == nil:
		in.here = true
	case in.listed:
		r.order.remove(in)
		r.over(in, in.tag, n, err)
	case err != nil || !r.order.waits(in):
		r.over(in, in.tag, n, err)
		return
	default:
		listMatched(r, in, true)
		return
	}
	r.release()
}

// listMatched lists in among the receives that wait for others. here: it has its message.
func listMatched(r *receiver, in *In, here bool) {
	r.order.add(in, here)
	if in.shared {
		r.shared.leave(in)
	}
}

// release ends the receives that no longer wait for others.
func (r *receiver) release() {
	if r.order.releasing {
		return
	}
	r.order.releasing = true
	for {
		ready := r.order.due()
		if len(ready) == 0 {
			break
		}
		for i, in := range ready {
			ready[i] = nil
			in.listed = false
			r.over(in, in.tag, int(in.size), nil)
		}
	}
	r.order.releasing = false
}

// over ends a receive.
func (r *receiver) over(in *In, tag uint32, n int, err error) {
	if in.away {
		r.shared.stay(in)
	}
	if in.late && err == nil {
		part := [1][]byte{in.Buf[:n]}
		in.Use(tag, part[:])
	}
	r.pins.release(&in.pin)
	if err == nil {
		r.stats.Received++
	} else {
		err = blame(err)
	}
	done := in.Done
	in.Buf, in.Use = nil, nil
	if done != nil {
		done.Complete(tag, n, err)
	}
}

// bury records a lost message at its place in the order.
func (r *receiver) bury(seq uint64, tag uint32) {
	r.unexpected.bury(seq, tag)
	r.partLost()
	r.next = seq + 1
}

// partLost takes the receives of this channel that would take a lost message off the list.
func (r *receiver) partLost() {
	for before, in := (*In)(nil), r.posted.head; in != nil; {
		next := in.next
		if r.unexpected.hides(in, math.MaxUint64) {
			r.posted.remove(before, in)
			r.lost = append(r.lost, in)
		} else {
			before = in
		}
		in = next
	}
}

// lose ends a receive whose message was lost with the connection.
func (r *receiver) lose(in *In) {
	switch {
	case r.finished:
		r.endLost(in)
	case in.listed:
		in.gone = true // for finish
	default:
		r.unexpected.bury(in.seq, in.tag)
		r.lost = append(r.lost, in)
	}
}

// endLost ends a receive whose message was lost. A receive from any of several channels
// returns to its place, unless it was withdrawn: others may have a message for it.
func (r *receiver) endLost(in *In) {
	switch s := r.shared; {
	case !in.shared || s.Again == nil:
		r.received(in, in.tag, 0, r.err)
	case in.cancel:
		r.received(in, in.tag, 0, ErrCanceled)
	default:
		r.pins.release(&in.pin)
		if in.away {
			s.stay(in)
		}
		in.inState = inState{}
		s.Again(in)
	}
}
