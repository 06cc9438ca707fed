package rdv

import (
	"fmt"

	"github.com/seed33544411/rma/flowctl"
	"github.com/seed33544411/rma/scatter"
)

// sendBatch is Send after waiting answers were sent.
func (s *source) sendBatch(d *scatter.Descriptor, keys *RailKeys, tag uint32, token uint64) (ID, Result, error) {
	if err := s.ready(); err != nil {
		return 0, Busy, err
	}
	if len(d.Messages) > int(s.peer.Messages) || len(d.Regions) > int(s.peer.Regions) {
		return 0, Busy, fmt.Errorf("send batch of %d messages in %d regions: %w: %d messages, %d regions",
			len(d.Messages), len(d.Regions), ErrTooLarge, s.peer.Messages, s.peer.Regions)
	}
	var err error
	if s.payload, err = d.Append(s.payload[:0]); err != nil {
		return 0, Busy, fmt.Errorf("send batch: %w", err)
	}
	if keys != nil {
		s.payload = keys.append(s.payload)
	}
	if most := s.ring.MaxPayload(flowctl.Control, true); len(s.payload) > most {
		return 0, Busy, fmt.Errorf("send batch: descriptor of %d bytes: %w: the peer's ring takes %d", len(s.payload), ErrTooLarge, most)
	}
	slot, ok := s.nextOutgoing()
	if !ok {
		return 0, Busy, s.err
	}
	id, ok := s.announce(KindRTS, slot, tag, token, byReference, len(d.Messages))
	if !ok {
		return 0, Busy, s.err
	}
	return id, Accepted, nil
}

// sendUnregistered is SendUnregistered for at least one byte, after waiting answers were
// sent.
func (s *source) sendUnregistered(pos uint64, src []byte, by Means, tag uint32, token uint64) (ID, Result, error) {
	if err := s.ready(); err != nil {
		return 0, Busy, err
	}
	if err := s.openPipes(by); err != nil {
		return 0, Busy, fmt.Errorf("send unregistered: %w", err)
	}
	slot, ok := s.nextOutgoing()
	if !ok {
		return 0, Busy, s.err
	}
	s.payload = appendOffer(s.payload[:0], scatter.Message{Pos: pos, Size: uint32(len(src))})
	id, ok := s.announce(KindOffer, slot, tag, token, by, 1)
	if !ok {
		return 0, Busy, s.err
	}
	s.stats.Offers++
	s.beginPipe(slot, src, by)
	return id, Accepted, nil
}

// onFIN ends an outgoing transfer.
func (s *source) onFIN(id ID, status uint32, payload []byte) error {
	o := s.findOutgoing(id)
	sh := s.shares.of(shareOutgoing, id.slot())
	s.waited = status == statusWaited || sh != nil // then it is not the time of the link alone
	switch {
	case o == nil:
		return &ProtocolError{KindFIN, id, ErrUnknownID, uint64(id), uint64(len(s.out))}
	case sh != nil && sh.owned():
		return &ProtocolError{KindFIN, id, ErrClaim, uint64(sh.copied), uint64(sh.claimed)}
	case status >= numStatus:
		return &ProtocolError{KindFIN, id, ErrMessage, uint64(status), uint64(numStatus)}
	case status != statusRefused && o.by != byReference && !s.pipes[id.slot()].announced():
		p := &s.pipes[id.slot()]
		return &ProtocolError{KindFIN, id, ErrSize, uint64(p.off), uint64(len(p.src))}
	case status != statusRefused && len(payload) != 0 || status == statusRefused && checkRefused(payload, int(o.n)) != nil:
		return &ProtocolError{KindFIN, id, ErrMessage, uint64(len(payload)), uint64(o.n)}
	}
	if status == statusRefused {
		s.refused = payload
		s.endOutgoing(id.slot(), ErrRefused)
		s.refused = nil
		return nil
	}
	s.endOutgoing(id.slot(), nil)
	return nil
}

// Waited reports, within Handler.Sent, whether the transfer waited at the peer for a
// destination: its duration is then not a property of the link.
func (s *source) Waited() bool { return s.waited }

// Refused reports, within Handler.Sent with ErrRefused, whether message i of the transfer
// was refused; the others were fetched.
func (s *source) Refused(i int) bool { return s.refused[i/8]>>(i%8)&1 != 0 }

// endOutgoing frees the slot, then calls the handler, which may use the slot at once.
func (s *source) endOutgoing(slot int, err error) {
	o := &s.out[slot]
	if o.by != byReference {
		s.endPipe(&s.pipes[slot])
	}
	s.shares.give(s.shares.of(shareOutgoing, slot))
	o.busy = false
	s.outFree = append(s.outFree, uint16(slot))
	s.end(int(o.n))
	s.h.Sent(o.token, err)
}

// sweepOutgoing ends, after a failure, the transfers whose sources the peer cannot read: of
// copied messages it never accesses the source.
func (s *source) sweepOutgoing() {
	for i := range s.out {
		if o := &s.out[i]; o.busy && !s.shares.of(shareOutgoing, i).inFlight() && (s.severed || o.by == Copy) {
			s.endOutgoing(i, s.err)
		}
	}
}
