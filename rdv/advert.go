package rdv

import (
	"fmt"
	"math"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/flowctl"
)

// States of an advert of this side.
const (
	mineFree    uint8 = iota
	mineOpen          // it ends with the peer's answer
	mineRevoked       // a revocation is queued or sent; it still ends with the answer
)

// myAdvert is a destination of this side that the peer may write until it answers, or until
// the endpoint is down.
type myAdvert struct {
	token uint64
	len   uint32
	gen   uint16
	state uint8
	word  uint8 // number of its claim word, plus 1; 0: it has none
}

// WhyRevoked is the reason in the answer to an advert that was returned because it was
// revoked. An answer that crossed the revocation has another reason.
const WhyRevoked = 1 << 30

// advertise is Advertise after waiting answers were sent.
func (s *sink) advertise(w Want, k fabric.RemoteKey, token uint64) (ID, Result, error) {
	if err := s.ready(); err != nil {
		return 0, Busy, err
	}
	if k.Len > math.MaxUint32 {
		return 0, Busy, fmt.Errorf("advertise %d bytes: %w: %d", k.Len, ErrTooLarge, uint32(math.MaxUint32))
	}
	if s.answers.Len() > 0 || len(s.mineFree) == 0 {
		s.stats.Busy++
		return 0, Busy, nil
	}
	slot := int(s.mineFree[len(s.mineFree)-1])
	a := &s.mine[slot]
	id := makeID(slot, a.gen+1)
	var ref claimRef
	word, claimed := uint16(0), false
	if k.Len >= leastShared {
		if word, claimed = s.claims.take(claimName(id, true)); claimed {
			ref = s.claims.ref(word)
		}
	}
	s.payload = appendAdvert(s.payload[:0], w, k, ref)
	if !s.send(KindAdvert, id, w.Tag, s.payload) {
		if claimed {
			s.claims.drop(word)
		}
		s.stats.Busy++
		return 0, Busy, s.err
	}
	s.mineFree = s.mineFree[:len(s.mineFree)-1]
	*a = myAdvert{token: token, len: uint32(k.Len), gen: id.gen(), state: mineOpen}
	if claimed {
		a.word = uint8(word) + 1
	}
	return id, Accepted, nil
}

// MayAdvertise returns how many more adverts there is room for: slots, and half of the
// ring's capacity, so that announcements and answers are not delayed.
//
// Hot path.
func (s *sink) MayAdvertise() int {
	return min(len(s.mineFree), s.ring.Free(flowctl.Control)/2)
}

// Shares reports whether a destination of n bytes would be advertised with a claim word, so that
// both ends write there: this end as well as the sender then copies what it has time for.
//
// Hot path.
func (s *sink) Shares(n int) bool {
	return n >= leastShared && s.claims.direct != nil && (s.claims.claimWords == nil || len(s.claims.free) > 0)
}

// Revoke asks the peer to return an advert of this side. Handler.Filled reports the result:
// ErrCancelled if it was not used, with WhyRevoked if the peer returned it. ErrHandle means
// that the advert has ended. The request is posted with the next Flush or Progress.
//
// Hot path.
func (s *sink) Revoke(id ID) error {
	a := s.findMine(id)
	switch {
	case a == nil:
		return fmt.Errorf("revoke %v: %w", id, ErrHandle)
	case s.err != nil || a.state == mineRevoked:
		return s.err
	}
	a.state = mineRevoked
	s.answers.Push(answer{KindRevoke, id, 0})
	s.Nudge() // so that there will be room if the request must wait
	return nil
}

// findMine returns the advert of this side with that id, or nil if it has ended.
func (s *sink) findMine(id ID) *myAdvert {
	if id.slot() >= len(s.mine) {
		return nil
	}
	if a := &s.mine[id.slot()]; a.state != mineFree && a.gen == id.gen() {
		return a
	}
	return nil
}

// onDone ends an advert of this side that was written.
func (s *sink) onDone(id ID, n uint32, payload []byte) error {
	a := s.findMine(id)
	sh := s.shares.of(shareAdvert, id.slot())
	note, why := parseDone(payload)
	switch {
	case why != nil:
		return &ProtocolError{KindDone, id, why, uint64(len(payload)), doneSize}
	case a == nil:
		return &ProtocolError{KindDone, id, ErrUnknownID, uint64(id), uint64(len(s.mine))}
	case n > a.len || sh != nil && n != sh.parts.total:
		return &ProtocolError{KindDone, id, ErrSize, uint64(n), uint64(a.len)}
	case sh != nil && !s.claims.placed(sh):
		return &ProtocolError{KindDone, id, ErrClaim, uint64(sh.copied), uint64(sh.n)}
	}
	s.shares.give(sh)
	s.endAdvert(id.slot(), Answer{Bytes: n, Pos: note.pos, Tag: note.tag}, nil)
	return nil
}

// onShare begins to copy a message, together with the peer, to an advert of this side.
func (s *sink) onShare(id ID, n uint32, payload []byte) error {
	a := s.findMine(id)
	x, why := parseShare(payload, n)
	switch {
	case why != nil:
		return &ProtocolError{KindShare, id, why, uint64(len(payload)), shareSize}
	case a == nil || a.word == 0 || s.shares.of(shareAdvert, id.slot()) != nil:
		return &ProtocolError{KindShare, id, ErrUnknownID, uint64(id), uint64(len(s.mine))}
	case n > a.len || n < leastShared:
		return &ProtocolError{KindShare, id, ErrSize, uint64(n), uint64(a.len)}
	}
	dst, ok := s.claims.by.Into(a.token, n)
	if !ok || dst.Len != n {
		return nil // the peer copies all
	}
	if sh := s.shares.take(shareAdvert, id.slot(), id, n); sh != nil {
		sh.number, sh.note = uint16(a.word-1), x.note
		sh.local, sh.far = dst, fabric.RemoteKey{Addr: x.addr, RKey: x.rkey}
	}
	return nil
}

// onDecline ends an advert of this side that was not written.
func (s *sink) onDecline(id ID, why uint32) error {
	a := s.findMine(id)
	switch {
	case a == nil || s.shares.of(shareAdvert, id.slot()) != nil:
		return &ProtocolError{KindDecline, id, ErrUnknownID, uint64(id), uint64(len(s.mine))}
	case a.state == mineRevoked:
		s.endAdvert(id.slot(), Answer{Why: why}, ErrCancelled)
	default:
		s.endAdvert(id.slot(), Answer{Why: why}, ErrDeclined)
	}
	return nil
}

func (s *sink) endAdvert(slot int, x Answer, err error) {
	a := &s.mine[slot]
	if a.word > 0 && s.live {
		s.claims.drop(uint16(a.word - 1))
	}
	a.state, a.word = mineFree, 0
	s.mineFree = append(s.mineFree, uint16(slot))
	s.h.Filled(a.token, x, err)
}

// sweepAdverts ends, after a failure, adverts of this side that the peer can no longer
// write.
func (s *sink) sweepAdverts() {
	for i := range s.mine {
		if sh := s.shares.of(shareAdvert, i); s.mine[i].state != mineFree && !sh.inFlight() {
			s.shares.give(sh)
			s.endAdvert(i, Answer{}, s.err)
		}
	}
}
