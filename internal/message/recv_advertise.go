package message

import (
	"errors"
	"slices"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/rdv"
)

const (
	advertScan = 64 // receives that one search for more to advertise considers
	advertTags = 16 // tags of receives that are not advertised which a search remembers
	mostTries  = 3  // times that one receive is advertised

)

// advertise advertises receives whose message is not yet on its way. A receive may be
// advertised when all receives before it that compete for a message with it are: only then
// does the peer know which message it takes.
func (r *receiver) advertise() (did bool) {
	a := &r.advertised
	if !a.dirty || a.waiting == 0 || a.short || r.err != nil {
		return false
	}
	room := r.rendezvous.MayAdvertise()
	if room <= 0 {
		return false // dirty remains set
	}
	a.urgent = false
	a.dirty = false              // set again by a message, a receive, or an answer
	var other [advertTags]uint32 // tags of receives that are not advertised
	others, seen := 0, 0
	for in := r.posted.head; in != nil; in = in.next {
		if seen++; seen > advertScan {
			break
		}
		if in.ad != adNone || in.Peek {
			continue
		}
		free := in.Any && others == 0 || !in.Any && in.Ignore == 0 && !slices.Contains(other[:others], in.Tag)
		if free && in.waits && r.shared != nil {
			free = !r.shared.rivals(in, r.from)
		}
		if free && in.waits && r.next > in.after && r.advertised.outcomes.good(in) {
			if room == 0 {
				a.dirty = true
				break
			}
			if r.offer(in) {
				room--
				did = true
				continue
			}
			if r.err != nil {
				break
			}
		}
		if in.Any || in.Ignore != 0 || others == len(other) {
			break
		}
		other[others] = in.Tag
		others++
	}
	return did
}

// offer advertises in.
func (r *receiver) offer(in *In) bool {
	k := fabric.RemoteKey{Addr: fabric.Addr(in.Buf), Len: uint64(len(in.Buf)), RKey: in.RKey}
	if !in.Remote {
		if err := in.register(r.pins, len(in.Buf)); err != nil {
			r.advertised.unwatch(in)
			return false
		}
		k.RKey = in.pin.rkey
	}
	w := rdv.Want{Pos: r.next, Tag: in.Tag, Note: r.advertised.lateAnswers & noteEpoch}
	if in.Any {
		w.Tag, w.Note = 0, w.Note|noteAny
	}
	token := r.advertised.put(in)
	id, res, err := r.rendezvous.Advertise(w, k, token)
	if err != nil {
		r.fail(err)
	}
	if err != nil || res != rdv.Accepted {
		r.advertised.take(token)
		r.advertised.dirty = true
		return false
	}
	in.ad, in.adID, in.owed, in.owing = adOpen, id, false, 0
	r.unflushed = true
	in.tries++
	r.advertised.unwatch(in)
	r.stats.Adverts++
	return true
}

// Filled ends the advertisement of a receive: the peer no longer writes there.
func (h *recvHandler) Filled(token uint64, a rdv.Answer, err error) {
	r := (*receiver)(h)
	in := r.advertised.take(token)
	in.ad, in.owed = adSettled, false
	r.advertised.dirty = true
	declined := errors.Is(err, rdv.ErrDeclined)
	if errors.Is(err, rdv.ErrCancelled) {
		declined = a.Why != rdv.WhyRevoked // declined before the peer saw the revocation
	}
	switch {
	case errors.Is(err, rdv.ErrCancelled) && !declined:
		r.advertised.lateAnswers++
		if in.ad = adNone; !in.cancel && !in.matched {
			r.advertised.watch(in)
		}
	case declined && a.Why&whyLate != 0:
		r.advertised.lateAnswers++
		r.stats.LateAdverts++
		r.advertised.outcomes.change(in, -2)
		in.ad = adNone
		// Advertise it again when the message that may take it has come and did not.
		in.after = r.next + uint64(int64(int32(a.Why-uint32(r.next))<<1>>1))
		if in.tries < mostTries && !in.matched {
			r.advertised.watch(in)
		}
	case declined && a.Why != whySpoken:
		r.refuse(peerError("advertised receive declined for reason %d", a.Why))
	case err == nil && (in.matched || a.Pos < r.next || !in.takes(a.Tag)):
		r.refuse(peerError("message %d, tag %d, written to a receive that does not take it", a.Pos, a.Tag))
		in.err = r.lie
	case err == nil:
		r.advertised.outcomes.change(in, 1)
		w := written{a.Pos, a.Tag, a.Bytes, in}
		i := len(r.advertised.written)
		for i > 0 && r.advertised.written[i-1].seq > w.seq {
			i--
		}
		r.advertised.written = slices.Insert(r.advertised.written, i, w)
	}
	if !in.matched {
		r.pins.release(&in.pin) // the cache keeps it while it has room; a written message may have to wait for its turn
	}
	if in.cancel && in.ad == adNone && !in.matched {
		r.Cancel(in)
		return
	}
	switch {
	case in.ended && in.gone:
		r.endLost(in)
	case in.ended:
		r.received(in, in.tag, int(in.size), in.err)
	}
}

// takeWritten delivers the next message in order, which was written. It lies in the buffer
// of the receive that takes it, unless the peer violates the protocol.
func (r *receiver) takeWritten() {
	w := r.advertised.written[0]
	r.advertised.written = slices.Delete(r.advertised.written, 0, 1)
	if r.draining && !r.posted.has(w.in) {
		r.bury(w.seq, w.tag) // its receive stands behind a lost message
		return
	}
	in := r.match(w.tag, int(w.size), false)
	r.next++
	if in != w.in {
		err := peerError("message %d written to the receive of another message", w.seq)
		if in != nil {
			r.received(in, w.tag, 0, err)
		}
		r.fail(err)
		return
	}
	r.received(in, w.tag, int(w.size), nil)
}
