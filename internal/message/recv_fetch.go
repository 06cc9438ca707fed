package message

import (
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/rdv"
	"github.com/seed33544411/rma/scatter"
)

// recvHandler receives the calls of the rendezvous channel for a receiver.
type recvHandler receiver

// Match accepts a message that is next in order and for which there is a receive. Others
// are held. Consecutive messages that are accepted here are fetched together.
func (h *recvHandler) Match(m rdv.Incoming) ([]fabric.SGE, rdv.Verdict) {
	r := (*receiver)(h)
	if m.Pos < r.next {
		r.refuse(&SequenceError{"descriptors", m.Pos, r.next})
		return nil, rdv.Refuse
	}
	a := announced{seq: m.Pos, tag: m.Tag, size: m.Size, handle: m.Handle}
	if m.Pos != r.next || r.held.Len() > 0 || r.broken() != nil || !r.reads.may() {
		if !r.held.insert(a) {
			r.refuse(&SequenceError{"descriptors", m.Pos, m.Pos + 1})
			return nil, rdv.Refuse
		}
		return nil, rdv.Later
	}
	r.next++
	in := r.match(a.tag, int(a.size), false)
	if in == nil {
		r.unexpected.announce(a)
		return nil, rdv.Later
	}
	r.advertised.announcedTo(in)
	in.tag, in.size, in.seq = a.tag, a.size, a.seq
	dst, err := in.pieces(r.pins, &r.dst)
	switch {
	case r.advertised.later(err, &r.reads, r.fetching):
		r.startFetching(in, a.handle)
		r.reads.parked = append(r.reads.parked, a.handle)
		return nil, rdv.Later
	case err != nil:
		r.received(in, a.tag, 0, err)
		return nil, rdv.Refuse // the sender gets an error
	}
	r.startFetching(in, a.handle)
	r.reads.start(in)
	return dst, rdv.Take
}

// Destination implements rdv.Carrier. A receive that is advertised besides is offered only if
// both ends copy its message: its advertisement must be answered anyway.
func (h *recvHandler) Destination(m rdv.Handle) (k fabric.RemoteKey, ok bool) {
	r := (*receiver)(h)
	in := r.fetching[m]
	if in == nil || in.ad == adOpen && !r.rendezvous.Shares(int(in.size)) || !in.pin.held && !in.Remote {
		return k, false
	}
	k = fabric.RemoteKey{Addr: fabric.Addr(in.Buf), Len: uint64(in.size), RKey: in.RKey}
	if in.pin.held {
		k.RKey = in.pin.rkey
	}
	return k, true
}

// Into implements rdv.Carrier.
func (h *recvHandler) Into(token uint64, n uint32) (fabric.SGE, bool) {
	r := (*receiver)(h)
	in := r.advertised.get(token)
	if uint64(n) > uint64(len(in.Buf)) || !in.pin.held && !in.Registered {
		return fabric.SGE{}, false
	}
	s, err := in.destination(r.pins, int(n))
	return s, err == nil
}

// takeHeld delivers the announced message that is next in order.
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

// accept fetches a message into a receive, now or when fewer are being read.
func (r *receiver) accept(in *In, a announced) {
	in.tag, in.size, in.seq = a.tag, a.size, a.seq
	r.startFetching(in, a.handle)
	r.unflushed = r.unflushed || int(a.size) >= r.advertiseFrom
	if in.Refuse == nil && (len(r.reads.parked) > 0 || !r.reads.may()) || !r.read(in, a.handle) {
		r.reads.parked = append(r.reads.parked, a.handle)
	}
}

// read starts to read a message that is being fetched. It returns false if its memory
// cannot be registered now.
func (r *receiver) read(in *In, h rdv.Handle) bool {
	dst, err := in.pieces(r.pins, &r.dst)
	switch {
	case r.advertised.later(err, &r.reads, r.fetching):
		return false
	case err != nil:
		delete(r.fetching, h)
		_, _ = r.rendezvous.Refuse(h) // the sender gets an error
		r.received(in, in.tag, 0, err)
		return true
	}
	r.reads.start(in)
	if err := r.rendezvous.Accept(h, dst); err != nil && r.fetching[h] == in {
		delete(r.fetching, h)
		r.reads.end(in)
		r.ended(in, in.tag, 0, err)
	}
	return true
}

// unpark starts to read messages that were delayed, as many as may be now. If memory is
// short, messages whose memory is registered go first.
func (r *receiver) unpark() {
	all := r.reads.parked
	kept := all[:0]
	short := false
	for i, h := range all {
		in := r.fetching[h]
		switch {
		case in == nil: // it has ended
		case !r.reads.may() || r.broken() != nil:
			kept = append(kept, all[i:]...)
			r.reads.parked = kept
			return
		case short && !in.pin.held && !in.Registered, !r.read(in, h):
			short = true
			kept = append(kept, h)
		}
	}
	if r.reads.parked = kept; len(kept) == 0 {
		r.advertised.short, r.advertised.dirty = false, true
	}
}

// Received ends a message of the peer, fetched or failed.
func (h *recvHandler) Received(m rdv.Incoming, err error) {
	r := (*receiver)(h)
	in := r.fetching[m.Handle]
	if in != nil {
		delete(r.fetching, m.Handle)
		r.reads.end(in)
		r.ended(in, m.Tag, int(m.Size), err)
		return
	}
	// The message failed before a receive matched it. If the channel has ended, the receive
	// that matches it later gets the error.
	if r.broken() == nil {
		r.refuse(err)
	}
}

// startFetching records that in is being fetched as h.
func (r *receiver) startFetching(in *In, h rdv.Handle) {
	r.fetching[h] = in
	in.late = in.Use != nil
	if !in.loose {
		listMatched(r, in, false)
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

// ReadRails implements rdv.RailReader.
func (h *recvHandler) ReadRails(m rdv.Handle, src scatter.Region, keys rdv.RailKeys) bool {
	r := (*receiver)(h)
	in := r.fetching[m]
	if in == nil || src.Len < railsFrom {
		return false
	}
	r.opt.Rails.Read(in.Buf[:in.size], src, keys, func(err error) { r.rendezvous.Fetched(m, err) })
	return true
}
