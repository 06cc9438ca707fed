package eager

import (
	"encoding/binary"

	"github.com/seed33544411/rma/fabric"
)

// flush completes the staged requests with write cursor and credit, and posts them. Credit
// is returned when it is due; with force, when any is owed.
//
// Hot path.
func (s *sender) flush(force bool) error {
	if !s.live {
		return s.err
	}
	if err := s.applyCredit(); err != nil {
		return err
	}
	if head := s.tx.Head(); s.cursorOut && s.cursorSent != head && s.makeRoom(1, 1) {
		// The word belongs to the last block that it announces: it may be reused when that
		// block is free.
		off := s.txRing.bytes() + 8*int(s.txRing.Slot(head-1))
		binary.LittleEndian.PutUint64(s.out[off:], head)
		s.append(fabric.NewSGE(s.out[off:off+8], s.outKey), cursorCell, s.id(head))
		s.cursorSent = head
		s.sign(s.staged-1, head)
	}
	// The completion of a credit write stands for the head, so the cursor of the head must
	// be staged first.
	silent := false // the peer has no reason to wake
	if s.back.rx.Due(s.first != s.staged) || force && s.back.rx.Owed() > 0 {
		if !s.creditOut && (!s.cursorOut || s.cursorSent == s.tx.Head()) && s.makeRoom(1, 1) {
			silent = s.first == s.staged && s.back.rx.Owed() == 0 // all that is new is whether this side sleeps
			s.stageCredit()
		}
	}
	if s.nudge {
		s.stageNudge()
	}
	if s.first == s.staged {
		s.first, s.staged, s.pieces = 0, 0, 0
		return nil
	}
	if s.borrowed {
		s.signBorrowed()
	}
	if s.tx.PeerSleeps() && !silent {
		if w := &s.wrs[s.staged-1]; w.Flags&fabric.FlagNotify == 0 {
			w.Flags |= fabric.FlagNotify
			s.stats.Notifies++
		}
	}
	n, err := s.ep.Post(s.wrs[s.first:s.staged])
	s.stats.Posts++
	s.stats.Writes += uint64(n)
	s.first += n
	if err != nil {
		return s.fail(err)
	}
	if s.first == s.staged {
		s.first, s.staged, s.pieces = 0, 0, 0
	}
	return nil
}

// applyCredit reads the credit word and applies it if it has changed.
//
// Hot path.
func (s *sender) applyCredit() error {
	w := load64(s.back.cells[:], creditCell)
	if w == s.word {
		return nil
	}
	if err := s.tx.Apply(w); err != nil {
		switch z := s.rz; {
		case s.due&dueMove != 0 && w>>1 == z.offer.Geometry.Follow(s.tx.Head()):
			return nil // of the next ring: applied by move
		case z.moves == 0 || !s.tx.Late(&z.before, w):
			return s.fail(err)
		}
	}
	s.word = w
	return nil
}

// stageCredit appends the write of the consumption cursor to the peer's cell.
func (s *sender) stageCredit() {
	off := len(s.out) - 8
	binary.LittleEndian.PutUint64(s.out[off:], s.back.rx.Word())
	head := s.tx.Head()
	s.append(fabric.NewSGE(s.out[off:off+8], s.outKey), 0, s.id(head))
	w := &s.wrs[s.staged-1]
	w.RemoteAddr, w.RKey = s.rz.theirs.Addr+creditCell, s.rz.theirs.RKey
	if w.Flags&fabric.FlagInline == 0 {
		// The link reads the word later: it must not change until then.
		w.ID |= idCredit
		w.Flags |= fabric.FlagSignaled
		s.quiet, s.signaled, s.creditOut = 0, head, true
	} else {
		s.sign(s.staged-1, head)
	}
	s.stats.Credits++
}

// Nudge notifies the peer, whether it sleeps or not, after all messages so far, with the
// next Flush or Progress. Callers use it when they need an answer from a peer that may have
// stopped polling its ring.
//
// Hot path.
func (s *sender) Nudge() { s.nudge = true }

// stageNudge makes the last staged request carry a notification, or appends a request for
// it. If there is no room, or the write cursor is not staged, the notification remains due.
func (s *sender) stageNudge() {
	head := s.tx.Head()
	switch {
	case s.cursorOut && s.cursorSent != head:
		return
	case s.first != s.staged:
	case s.makeRoom(1, 0):
		s.wrs[s.staged] = fabric.WR{ID: s.id(head), Op: fabric.OpWrite}
		s.staged++
		s.quiet++
		s.sign(s.staged-1, head)
	default:
		return
	}
	s.nudge = false
	w := &s.wrs[s.staged-1]
	w.Flags |= fabric.FlagNotify
	w.Imm = s.peer.Imm
	s.stats.Notifies++
}

// Sign makes the last request of the next flush signalled: Done(pos) will soon report that
// the link has sent all messages so far. signed is false if nothing is staged; Done(pos)
// then waits for more traffic, unless it is true already.
//
// Hot path.
func (s *sender) Sign() (pos uint64, signed bool) {
	signed = s.first != s.staged
	s.borrowed = s.borrowed || signed
	return s.tx.Head(), signed
}

// Settle reports whether all messages so far are placed at the peer, or never will be
// because the channel has failed. Call it, and poll the link, until it returns true.
func (s *sender) Settle() bool {
	if !s.live {
		return true
	}
	head := s.tx.Head()
	cursorSent := !s.cursorOut || s.cursorSent == head
	switch {
	case s.first != s.staged || !cursorSent:
		s.borrowed = true // to signal the last request
	case s.Done(head):
		return true
	case s.signaled != head && s.makeRoom(1, 0):
		s.wrs[s.staged] = fabric.WR{ID: s.id(head), Op: fabric.OpWrite, Flags: fabric.FlagSignaled}
		s.staged++
		s.quiet, s.signaled = 0, head
	}
	_ = s.flush(false) // s.err keeps a failure
	return !s.live
}
