package rdv

import (
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/scatter"
)

// onAdvert handles a destination of the peer.
func (s *source) onAdvert(id ID, tag uint32, payload []byte) error {
	if id.slot() >= int(s.adverts) {
		return &ProtocolError{KindAdvert, id, ErrTooMany, uint64(id.slot()), uint64(s.adverts)}
	}
	if s.theirs == nil {
		s.theirs = make([]theirAdvert, s.adverts)
	}
	a := &s.theirs[id.slot()]
	if a.state != theirsFree || id.gen() != a.gen+1 {
		return &ProtocolError{KindAdvert, id, ErrIDReused, uint64(id.gen()), uint64(a.gen + 1)}
	}
	want, key, word, why := parseAdvert(payload)
	if why != nil {
		return &ProtocolError{KindAdvert, id, why, uint64(len(payload)), advertSize}
	}
	want.Tag = tag
	if s.words == nil && word != (claimRef{}) {
		s.words = make([]claimRef, len(s.theirs))
	}
	if s.words != nil {
		s.words[id.slot()] = word
	}
	*a = theirAdvert{want: want, key: key, gen: id.gen(), state: theirsOpen, late: true}
	s.h.Advertised(a.describe(id))
	return nil
}

// onRevoke returns an advert if it is not in use. A revocation of an advert that was just
// answered is valid and has no effect.
func (s *source) onRevoke(id ID) error {
	if id.slot() >= len(s.theirs) {
		return &ProtocolError{KindRevoke, id, ErrUnknownID, uint64(id.slot()), uint64(len(s.theirs))}
	}
	a := &s.theirs[id.slot()]
	if a.gen != id.gen() || !a.late {
		return &ProtocolError{KindRevoke, id, ErrUnknownID, uint64(id.gen()), uint64(a.gen)}
	}
	a.late = false
	if a.state == theirsOpen && s.h.Revoked(a.describe(id)) {
		s.answerAdvert(KindDecline, id, WhyRevoked)
	}
	return nil
}

// findTheirs returns the advert of the peer with that id, or nil unless its answer is due.
func (s *source) findTheirs(id ID) *theirAdvert {
	if id.slot() >= len(s.theirs) {
		return nil
	}
	if a := &s.theirs[id.slot()]; a.state == theirsOpen && a.gen == id.gen() {
		return a
	}
	return nil
}

// answerAdvert queues the answer to an advert of the peer.
func (s *source) answerAdvert(k Kind, id ID, arg uint32) {
	s.theirs[id.slot()].state = theirsAnswered
	s.answers.Push(answer{k, id, arg})
}

// sendAnswer sends the answer to an advert of the peer, whose slot is then free. It returns
// false if the ring has no room.
//
// Hot path.
func (s *source) sendAnswer(x answer) bool {
	if x.kind == KindPlaced {
		return s.send(x.kind, x.id, x.arg, nil)
	}
	a := &s.theirs[x.id.slot()]
	payload := s.note[:0] // not s.payload, which the caller may have filled
	if x.kind == KindDone {
		payload = appendDone(payload, doneNote{a.want.Pos, a.want.Tag})
	}
	if !s.send(x.kind, x.id, x.arg, payload) {
		return false
	}
	a.state = theirsFree
	return true
}

// Decline answers an advert of the peer that will not be used. why is passed on,
// uninterpreted. ErrHandle means that the advert was revoked or answered. The answer is
// posted with the next Flush or Progress.
//
// Hot path.
func (s *source) Decline(id ID, why uint32) error {
	switch {
	case s.err != nil:
		return s.err
	case s.findTheirs(id) == nil:
		return fmt.Errorf("decline %v: %w", id, ErrHandle)
	}
	s.answerAdvert(KindDecline, id, why)
	return nil
}

// Write answers an advert of the peer with data: it writes the pieces of src, in order, to
// the front of the destination, and then a control message with pos and tag of the message
// (uninterpreted). The list is copied; the memory belongs to the channel until Handler.Sent
// with token, which may be called within Write if there is nothing to write. ErrTooLarge
// and ErrHandle (revoked or answered) concern this call only; the advert remains. The
// writes are posted with the next Flush or Progress.
//
// Hot path.
func (s *source) Write(id ID, pos uint64, tag uint32, src []fabric.SGE, token uint64) (Result, error) {
	if err := s.ready(); err != nil {
		return Busy, err
	}
	a := s.findTheirs(id)
	if a == nil {
		return Busy, fmt.Errorf("write to advert %v: %w", id, ErrHandle)
	}
	var n uint64
	for i := range src {
		n += uint64(src[i].Len)
	}
	if n > a.key.Len {
		return Busy, fmt.Errorf("write %d bytes to advert %v: %w: %d", n, id, ErrTooLarge, a.key.Len)
	}
	if shared, res := s.shareWrite(a, id, doneNote{pos, tag}, src, uint32(n), token); shared {
		return res, s.err
	}
	if !s.freeJob() {
		s.stats.Busy++
		return Busy, nil
	}
	a.want = Want{Pos: pos, Tag: tag}
	if n == 0 {
		s.answerAdvert(KindDone, id, 0)
		s.h.Sent(token, nil)
		return Accepted, nil
	}
	a.state = theirsWriting
	s.startJob(writeJob{advert: id, token: token, bytes: uint32(n)}, src, a.key)
	return Accepted, nil
}

// shareWrite is Write of n bytes to an advert with a claim word: this side announces its source
// and begins to write in its next round. It returns false if this side is to write all of it.
func (s *source) shareWrite(a *theirAdvert, id ID, note doneNote, src []fabric.SGE, n uint32, token uint64) (shared bool, res Result) {
	if s.words == nil || n < leastShared || len(src) != 1 {
		return false, Busy
	}
	word := s.words[id.slot()]
	if word.rkey == 0 || s.claims.reach(word) == nil {
		return false, Busy
	}
	_, rkey, ok := s.claims.by.Source(token)
	if !ok || rkey == 0 {
		return false, Busy
	}
	sh := s.shares.take(shareWrite, id.slot(), id, n)
	if sh == nil {
		return false, Busy
	}
	s.payload = appendShare(s.payload[:0], sharing{note, src[0].Addr, rkey})
	if s.answers.Len() > 0 || !s.send(KindShare, id, n, s.payload) {
		s.shares.give(sh)
		s.stats.Busy++
		return true, Busy
	}
	a.want, a.state = Want{Pos: note.pos, Tag: note.tag}, theirsWriting
	sh.ref, sh.local, sh.far, sh.token = word, src[0], a.key, token
	return true, Accepted
}

// startJob begins to write src, which is not empty, to the front of the destination k. A job
// must be free.
//
// Hot path.
func (s *source) startJob(w writeJob, src []fabric.SGE, k fabric.RemoteKey) {
	slot := s.jobsFree[len(s.jobsFree)-1]
	s.jobsFree = s.jobsFree[:len(s.jobsFree)-1]
	j := &s.jobs[slot]
	j.busy, j.token, j.advert, j.bytes = true, w.token, w.advert, w.bytes
	j.src = append(j.src[:0], src...)
	j.region[0] = scatter.Region{Addr: k.Addr, Len: w.bytes, RKey: k.RKey}
	j.plan.Reset(j.src, s.lim)
	j.plan.Feed(j.region[:], 0)
	s.turns.Push(slot | turnWrite)
}

// MayWrite reports whether Write has room for one more.
//
// Hot path.
func (s *source) MayWrite() bool { return s.jobs == nil || len(s.jobsFree) > 0 }

// freeJob reports whether a job is free. The first call allocates them: most peers are never
// written to.
func (s *source) freeJob() bool {
	if s.jobs == nil {
		s.jobs, s.jobsFree = make([]writeJob, len(s.theirs)), freeList(len(s.theirs))
	}
	return len(s.jobsFree) > 0
}

// requestWrite builds one write of the job in that slot. more: there are others.
func (s *source) requestWrite(slot uint16) (more bool) {
	j := &s.jobs[slot]
	w := s.wrs[s.staged : s.staged+1]
	j.plan.Next(fabric.OpWrite, w, s.sges[s.pieces:], 0) // writes are not bounded by Caps.MaxReads
	s.pieces += len(w[0].Local)
	w[0].ID = uint64(s.opt.IDTag+1)<<48 | idWrite | uint64(slot)<<idSlotShift
	w[0].Flags = fabric.FlagSignaled
	if j.plan.Done() {
		w[0].ID |= idEnd
	}
	s.staged++
	s.writes++
	j.inflight++
	return !j.plan.Done()
}

// onPosted counts a write that the link took. Data that follows the last write of an advert
// on this endpoint is seen after it.
func (s *source) onPosted(id uint64) {
	s.stats.Writes++
	if id&idEnd != 0 {
		j := &s.jobs[id>>idSlotShift&idSlotMask]
		s.answerAdvert(KindDone, j.advert, j.bytes)
	}
}

// onWritten handles the completion of a write.
func (s *source) onWritten(id uint64) {
	if id&idEnd != 0 {
		s.endJob(int(id>>idSlotShift&idSlotMask), nil)
	}
}

// endJob ends a write: no request uses its sources any longer.
func (s *source) endJob(slot int, err error) {
	j := &s.jobs[slot]
	j.busy = false
	s.jobsFree = append(s.jobsFree, uint16(slot))
	if err == nil {
		s.stats.Written++
	}
	s.h.Sent(j.token, err)
}

// sweepJobs ends, after a failure, the writes with nothing in flight.
func (s *source) sweepJobs() {
	for i := range s.jobs {
		if j := &s.jobs[i]; j.busy && j.inflight == 0 {
			s.endJob(i, s.err)
		}
	}
}
