package rdv

import "github.com/seed33544411/rma/fabric"

// share copies one slice of the oldest shared transfer that has one left, so that control messages
// get their turn, and transfers end one after the other instead of all together.
//
// Hot path.
func (c *Channel) share() (did bool) {
	for born := uint64(0); c.live; {
		sh := c.shares.next(born)
		if sh == nil {
			break
		}
		born = sh.born
		some, moved := c.shareStep(sh)
		if did = did || some; moved {
			break
		}
	}
	return did
}

// shareStep claims, copies and counts a slice of sh, as far as possible now. did: anything, or it
// is to be tried again soon; moved: a slice was copied, or its request posted.
func (c *Channel) shareStep(sh *share) (did, moved bool) {
	if sh.state == sliceCopied {
		if did = c.countSlice(sh); sh.state != sliceNone || !sh.busy || !c.live {
			return did, false
		}
	}
	if sh.state == sliceNone {
		if again := c.claimSlice(sh); sh.state != sliceClaimed {
			return did || again, false
		}
	}
	if moved = c.copySlice(sh); sh.state == sliceCopied {
		c.countSlice(sh)
	}
	return true, moved
}

// countSlice counts the slice of sh that this side has copied, and ends the transfer if it was the
// last one. The state tells whether it was counted; did is false if the word cannot be reached.
func (c *Channel) countSlice(sh *share) (did bool) {
	word := c.claims.word(sh)
	if word == nil {
		return false // the endpoint is about to go down, or its queue is not empty
	}
	last, r := sh.count(word)
	if c.claimed(sh, r); r == claimDone {
		if sh.state = sliceNone; last {
			c.endShare(sh)
		}
	}
	return true
}

// claimSlice claims the next slice of sh. The state tells the result; again: the other end was
// faster, too often.
func (c *Channel) claimSlice(sh *share) (again bool) {
	word := c.claims.word(sh)
	if word == nil {
		return false
	}
	i, r := sh.claim(word)
	switch c.claimed(sh, r); r {
	case claimDone:
		sh.at, sh.state = i, sliceClaimed
	case claimNone:
		sh.state = sliceOver
	}
	return r == claimAgain
}

// claimed is called after each access to a claim word.
func (c *Channel) claimed(sh *share, r claimResult) {
	if sh.back {
		c.claims.direct.Stored(false)
	}
	if r == claimBad {
		c.fail(&ProtocolError{KindShare, sh.id, ErrClaim, uint64(sh.claimed), uint64(sh.n)})
	}
}

// copySlice copies the slice that was claimed: in the call if the peer's memory is mapped, else by
// a request. It returns false if the link has no room now.
func (c *Channel) copySlice(sh *share) bool {
	off, n := sh.parts.at(sh.at)
	sh.sge[0] = sh.local
	sh.sge[0].Addr += uint64(off)
	sh.sge[0].Len = n
	sh.wr[0] = fabric.WR{
		ID: uint64(c.opt.IDTag+1)<<48 | idShare | uint64(sh.index)<<idSlotShift, Op: fabric.OpRead,
		Flags: fabric.FlagSignaled, Local: sh.sge[:], RemoteAddr: sh.far.Addr + uint64(off), RKey: sh.far.RKey,
	}
	if sh.back {
		sh.wr[0].Op = fabric.OpWrite
	}
	if c.claims.direct.Do(&sh.wr[0]) {
		sh.state = sliceCopied
		c.stats.Slices++
		return true
	}
	k, err := c.ep.Post(sh.wr[:])
	switch {
	case err != nil:
		c.fail(err)
		return false
	case k == 0:
		c.stats.QueueFull++
		return false
	}
	sh.state = slicePosted
	c.stats.Slices++
	return true
}

// endShare ends a shared transfer whose last slice this side has copied.
func (c *Channel) endShare(sh *share) {
	c.shares.give(sh)
	switch sh.use {
	case shareIncoming:
		t := &c.in[sh.slot]
		c.claims.drop(sh.number)
		t.upto = t.runEnd
		c.sink.endRun(t, t.runEnd)
		c.sink.advance(t)
	case shareAdvert:
		c.answers.Push(answer{KindFilled, sh.id, 0})
		c.sink.endAdvert(int(sh.slot), Answer{Bytes: sh.parts.total, Pos: sh.note.pos, Tag: sh.note.tag}, nil)
	case shareOutgoing:
		c.answers.Push(answer{KindPlaced, sh.id, 0})
		c.stats.Carried++
		c.source.waited = true
		c.source.endOutgoing(int(sh.slot), nil)
	case shareWrite:
		c.source.answerAdvert(KindDone, sh.id, sh.parts.total)
		c.stats.Written++
		c.h.Sent(sh.token, nil)
	}
}

// sweepShares ends, after a failure, writes whose sources nobody reads any longer.
func (c *Channel) sweepShares() {
	for _, sh := range c.shares.each() {
		if sh.busy && sh.use == shareWrite && c.severed && !sh.inFlight() {
			c.shares.give(sh)
			c.h.Sent(sh.token, c.err)
		}
	}
}

// onCTS takes part in a transfer of this side, from the next round on.
func (c *Channel) onCTS(id ID, payload []byte) error {
	o := c.findOutgoing(id)
	if o == nil || o.by != byReference || o.n != 1 || o.offered {
		return &ProtocolError{KindCTS, id, ErrUnknownID, uint64(id), uint64(len(c.out))}
	}
	k, w, why := parseCTS(payload)
	if why != nil {
		return &ProtocolError{KindCTS, id, why, uint64(len(payload)), ctsSize}
	}
	o.offered = true
	if c.claims.direct == nil {
		return nil // the peer fetches it
	}
	src, _, ok := c.claims.by.Source(o.token)
	switch {
	case !ok:
		return nil
	case uint64(src.Len) != k.Len:
		return &ProtocolError{KindCTS, id, ErrSize, k.Len, uint64(src.Len)}
	}
	if sh := c.shares.take(shareOutgoing, id.slot(), id, src.Len); sh != nil {
		sh.ref, sh.local, sh.far = w, src, k
	}
	return nil
}

// onFilled ends a write of which the peer has copied the last slice.
func (c *Channel) onFilled(id ID) error {
	sh := c.shares.of(shareWrite, id.slot())
	switch {
	case sh == nil || sh.id != id:
		return &ProtocolError{KindFilled, id, ErrUnknownID, uint64(id), uint64(len(c.theirs))}
	case sh.owned():
		return &ProtocolError{KindFilled, id, ErrClaim, uint64(sh.copied), uint64(sh.claimed)}
	}
	c.theirs[id.slot()].state = theirsFree
	c.shares.give(sh)
	c.stats.Written++
	c.h.Sent(sh.token, nil)
	return nil
}
