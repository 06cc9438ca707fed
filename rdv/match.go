package rdv

import (
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/scatter"
)

// onRTS handles a descriptor and asks for destinations.
func (s *sink) onRTS(id ID, tag uint32, payload []byte) error {
	t, err := s.claim(KindRTS, id)
	if err != nil {
		return err
	}
	rest, err := t.d.Parse(payload, s.opt.bounds())
	if err != nil {
		return &ProtocolError{KindRTS, id, err, uint64(len(payload)), 0}
	}
	var rails RailKeys
	if len(rest) > 0 {
		if rails, err = parseRailKeys(rest); err != nil || s.byRails == nil || len(t.d.Messages) != 1 || len(t.d.Regions) != 1 {
			return &ProtocolError{KindRTS, id, ErrMessage, uint64(len(payload)), uint64(len(payload) - len(rest))}
		}
	}
	if err := s.begin(t, KindRTS, id, tag); err != nil {
		return err
	}
	t.rails = rails
	s.match(t)
	return nil
}

// onOffer handles a message that is sent in chunks.
func (s *sink) onOffer(id ID, tag uint32, payload []byte) error {
	t, err := s.claim(KindOffer, id)
	if err != nil {
		return err
	}
	m, why := parseOffer(payload)
	if why != nil {
		return &ProtocolError{KindOffer, id, why, uint64(len(payload)), offerSize}
	}
	t.d.Messages = append(t.d.Messages[:0], m)
	if err := s.begin(t, KindOffer, id, tag); err != nil {
		return err
	}
	t.chunked = true
	t.d.Regions = t.d.Regions[:0]
	for len(t.d.Regions) < s.opt.Chunks {
		t.d.Regions = append(t.d.Regions, scatter.Region{})
	}
	s.match(t)
	return nil
}

// onChunk records the region of the next chunk of an offer.
func (s *sink) onChunk(id ID, payload []byte) error {
	t := s.active(id)
	if t == nil || !t.chunked || t.msgs[0].state != msgRunning {
		return &ProtocolError{KindChunk, id, ErrUnknownID, uint64(id), uint64(len(s.in))}
	}
	r, why := parseChunk(payload)
	switch {
	case why != nil:
		return &ProtocolError{KindChunk, id, why, uint64(len(payload)), chunkSize}
	case int(t.announced-t.fetched) >= s.opt.Chunks:
		return &ProtocolError{KindChunk, id, ErrTooMany, uint64(t.announced - t.fetched), uint64(s.opt.Chunks)}
	case t.bytes+uint64(r.Len) > t.msgs[0].end:
		return &ProtocolError{KindChunk, id, ErrSize, t.bytes + uint64(r.Len), t.msgs[0].end}
	}
	t.d.Regions[int(t.announced)%s.opt.Chunks] = r
	t.announced++
	t.bytes += uint64(r.Len)
	if !t.queued && t.feed() {
		s.queueTurn(t)
	}
	return nil
}

// onPlaced ends a transfer that the peer has written.
func (s *sink) onPlaced(id ID) error {
	t, sh := s.active(id), s.shares.of(shareIncoming, id.slot())
	switch {
	case t == nil || sh == nil:
		return &ProtocolError{KindPlaced, id, ErrUnknownID, uint64(id), uint64(len(s.in))}
	case !s.claims.placed(sh):
		return &ProtocolError{KindPlaced, id, ErrClaim, uint64(sh.copied), uint64(sh.n)}
	}
	s.shares.give(sh)
	s.claims.drop(sh.number)
	s.stats.Placed++
	t.upto = t.runEnd
	s.endRun(t, t.runEnd)
	s.free(t)
	return nil
}

// match asks for the destination of every message of a new transfer.
func (s *sink) match(t *incoming) {
	t.matching = true
	for i := range t.msgs {
		dst, v := s.h.Match(t.describe(i))
		if t.msgs[i].state != msgWaiting {
			continue // the handler has already called Accept or Refuse for it
		}
		switch v {
		case Take:
			s.take(t, i, dst)
		case Later:
		default:
			s.endMessage(t, i, ErrRefused)
		}
	}
	t.matching = false
	s.advance(t)
}

// take sets the destination of message i. The reads start with the next run.
func (s *sink) take(t *incoming, i int, dst []fabric.SGE) {
	var n uint64
	for k := range dst {
		n += uint64(dst[k].Len)
	}
	m := &t.msgs[i]
	if n != uint64(t.d.Messages[i].Size) {
		s.endMessage(t, i, ErrPieces)
		return
	}
	m.dst, m.n, m.state = uint32(len(t.dest)), uint32(len(dst)), msgMatched
	t.dest = append(t.dest, dst...)
}

// Accept sets the destination of a deferred message; dst as in Matcher.Match. ErrHandle
// means that the message has ended, as Received has reported.
//
// Hot path.
func (s *sink) Accept(h Handle, dst []fabric.SGE) error {
	t, i := s.findMessage(h)
	switch {
	case s.err != nil:
		return s.err
	case t == nil || t.msgs[i].state != msgWaiting:
		return fmt.Errorf("accept message %d of %v: %w", h.index(), h.id(), ErrHandle)
	}
	t.waited = true
	s.take(t, i, dst)
	s.step(t)
	return nil
}

// Refuse ends a message that was deferred, or taken and not yet being fetched; Received is
// not called for it. ok is false if it is being fetched: Received will be called.
//
// Hot path.
func (s *sink) Refuse(h Handle) (ok bool, err error) {
	t, i := s.findMessage(h)
	switch {
	case s.err != nil:
		return false, s.err
	case t == nil || t.msgs[i].state == msgEnded:
		return false, fmt.Errorf("refuse message %d of %v: %w", h.index(), h.id(), ErrHandle)
	case t.msgs[i].state == msgRunning:
		return false, nil
	}
	s.endMessage(t, i, ErrRefused)
	s.step(t)
	return true, nil
}
