package rdv

import (
	"sync/atomic"
	"time"

	"github.com/seed33544411/rma/fabric"
)

// mostShares is the number of transfers of both directions that a side shares with the peer at
// a time.
const mostShares = 2 * maxClaims

// Uses of a share.
const (
	shareIncoming uint8 = iota // sink: a transfer of the peer, after a CTS
	shareAdvert                // sink: an advert of this side, after a SHARE
	shareOutgoing              // source: a transfer of this side, after a CTS
	shareWrite                 // source: an advert of the peer, after a SHARE
)

// States of a share: of the slice that this side copies.
const (
	sliceNone    uint8 = iota // none now: the next one is to be claimed
	sliceClaimed              // to be posted
	slicePosted               // in flight
	sliceCopied               // to be counted in the claim word
	sliceOver                 // nothing is left to claim: the peer ends the transfer
)

// share is one end of a transfer that both ends carry out, slice by slice: the receiver reads,
// from the front; the sender writes, from the back. Who copies the last slice ends the transfer
// with one control message. An end that computes copies nothing, and the other one everything.
type share struct {
	claimant
	parts  slicing
	local  fabric.SGE       // all of the message here,
	far    fabric.RemoteKey // and there
	ref    claimRef         // the peer's word, if this end is the sender,
	number uint16           // or the number of this side's
	index  uint16           // in shares.all
	slot   uint16           // of the transfer or advert
	use    uint8
	state  uint8
	busy   bool
	at     int           // the slice that is copied
	born   uint64        // rising in the order of the beginnings
	note   doneNote      // shareAdvert: position and tag of the message
	token  uint64        // shareWrite
	owing  time.Duration // time that the peer alone has had something to do, see Overdue
	wr     [1]fabric.WR  // of the slice that is copied
	sge    [1]fabric.SGE
}

// inFlight reports whether the link uses memory of the share.
func (sh *share) inFlight() bool { return sh != nil && sh.state == slicePosted }

// waits reports whether the peer is to end the transfer, and this end has done its part.
func (sh *share) waits() bool { return sh.state == sliceOver && !sh.owned() }

// shares are the shared transfers of a channel. Their memory is created when needed and kept.
type shares struct {
	n    int32  // in use
	most uint32 // bytes of a slice
	*shareList
}

// shareList is the memory of shares.
type shareList struct {
	all  []*share
	born uint64 // of the youngest
}

// each returns all shares, in use or not.
func (s *shares) each() []*share {
	if s.shareList == nil {
		return nil
	}
	return s.all
}

// take returns a share for one end of a transfer of n bytes, nil if there are too many or a slice
// would exceed a request of the link.
func (s *shares) take(use uint8, slot int, id ID, n uint32) *share {
	if slice(n).size > s.most {
		return nil
	}
	if s.shareList == nil {
		s.shareList = &shareList{}
	}
	for _, sh := range s.all {
		if !sh.busy {
			return s.begin(sh, use, slot, id, n)
		}
	}
	if len(s.all) == mostShares {
		return nil
	}
	sh := &share{index: uint16(len(s.all))}
	s.all = append(s.all, sh)
	return s.begin(sh, use, slot, id, n)
}

// of returns the share of a transfer or advert, nil if it has none.
func (s *shares) of(use uint8, slot int) *share {
	if s.n > 0 {
		for _, sh := range s.all {
			if sh.busy && sh.use == use && int(sh.slot) == slot {
				return sh
			}
		}
	}
	return nil
}

func (s *shares) begin(sh *share, use uint8, slot int, id ID, n uint32) *share {
	s.n++
	s.born++
	parts := slice(n)
	back, advert := use == shareOutgoing || use == shareWrite, use == shareAdvert || use == shareWrite
	*sh = share{
		claimant: claimant{id: id, name: claimName(id, advert), n: parts.n, back: back}, parts: parts,
		index: sh.index, slot: uint16(slot), use: use, busy: true, born: s.born,
	}
	return sh
}

// next returns the oldest share that is younger than born and that this side can go on with, nil
// if there is none.
//
// Hot path.
func (s *shares) next(born uint64) (oldest *share) {
	for _, sh := range s.all {
		if sh.busy && sh.born > born && sh.state != slicePosted && sh.state != sliceOver && (oldest == nil || sh.born < oldest.born) {
			oldest = sh
		}
	}
	return oldest
}

// give ends the use of sh, which may be nil.
func (s *shares) give(sh *share) {
	if sh != nil {
		sh.busy = false
		s.n--
	}
}

// word returns the claim word of sh, nil if it cannot be accessed now. A sender calls Stored of
// the link when it has changed it.
func (c *claims) word(sh *share) *atomic.Uint64 {
	if !sh.back {
		return claimWord(c.mem, int(sh.number))
	}
	if mem := c.reach(sh.ref); mem != nil {
		return claimWord(mem, 0)
	}
	return nil
}

// placed reports whether the sender, which says that it has copied the last slice of sh, may have:
// this end copies none, and the word counts all.
func (c *claims) placed(sh *share) bool {
	return !sh.owned() && sh.read(c.word(sh).Load()) && sh.complete()
}

// leave keeps the sender, after a failure, from further slices of sh, which may be nil, and
// reports whether nobody writes its destination. severed: the sender no longer can.
func (c *claims) leave(sh *share, severed bool) bool {
	return sh == nil || !sh.inFlight() && (severed || sh.retreat(c.word(sh)))
}

// Overdue adds passed to the time that the peer alone has had something to do for a transfer that
// both ends carry out, and reports whether it is longer than limit and the time of a copy at rate
// bytes per second: the peer has claimed slices and does not copy them, or does not end the transfer.
func (c *core) Overdue(passed, limit time.Duration, rate int) (late bool) {
	if c.shares.n == 0 {
		return false
	}
	for _, sh := range c.shares.each() {
		switch {
		case !sh.busy:
		case !sh.waits():
			sh.owing = 0
		default:
			sh.owing += passed
			late = late || sh.owing >= limit+time.Duration(sh.parts.total)*time.Second/time.Duration(rate)
		}
	}
	return late
}
