package eager

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/seed33544411/rma/flowctl"
)

// Want asks the peer for a ring of n bytes, if the present one is smaller. The peer decides;
// what it refuses is asked for again after a number of calls that doubles.
func (c *Channel) Want(n int) {
	z := c.rz
	if !c.live || z.asked || c.due&(dueTake|dueMove) != 0 || n <= c.txRing.bytes() {
		return
	}
	if z.skip > 0 {
		z.skip--
		return
	}
	if b := z.budget; b != nil && int64(n) > b.limit-b.used.Load() { // for the mirror alone
		b.short()
		z.backOff()
		return
	}
	z.wanted, z.asked = uint64(n), true
	c.due |= dueAsk
}

// Shrink begins to replace the rings of both directions by the first ones. The peer is
// notified. Call Progress afterwards.
func (c *Channel) Shrink() {
	z := c.rz
	if !c.live {
		return
	}
	if c.due&(dueTake|dueMove) == 0 && !z.asked && c.peer.Region != z.theirs {
		z.wanted, z.asked = 0, true
		c.due |= dueAsk
	}
	c.shrinkOwn()
}

// shrinkOwn offers the first ring, unless it is in use or another one is on offer.
func (c *Channel) shrinkOwn() bool {
	z := c.rz
	if z.next != nil || z.now.reg == z.home.reg {
		return false
	}
	clear(z.home.mem[cursorCell:creditCell]) // nothing of then looks like what is to come
	clear(z.home.mem[ringStart:])
	z.next = &z.home
	c.due |= dueOffer
	return true
}

// Moved returns the numbers of rings that took the place of others: in the peer's memory,
// which this side writes, and in its own. Both change in Progress, or, after Connect, with
// messages found.
//
// Hot path.
func (c *Channel) Moved() (out, in uint32) { return c.rz.moves, c.rz.moved }

// own sends a message of the channel itself. It returns false if there is no room.
func (c *Channel) own(kind uint8, payload ...byte) bool {
	res, err := c.stage(&Envelope{Kind: kind, Class: flowctl.Control, flags: flagRing}, [][]byte{payload})
	if err != nil || res != Accepted {
		return false
	}
	c.stats.Sent--
	c.nudge = true
	return true
}

// resize does what is due.
func (c *Channel) resize() error {
	z := c.rz
	if c.due&dueAnswer != 0 {
		c.due &^= dueAnswer
		if !c.answer() {
			c.due |= dueRefuse
		}
	}
	if c.due&dueTake != 0 && z.mirror.reg == nil {
		c.accept()
	}
	if c.due&dueMove == 0 { // the peer sees nothing more in a ring that was left
		if c.due&dueDecline != 0 && c.own(kindDecline) {
			c.due &^= dueDecline
		}
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], z.wanted)
		if c.due&(dueAsk|dueDecline) == dueAsk && c.own(kindAsk, b[:]...) {
			c.due &^= dueAsk
		}
		if c.due&dueRefuse != 0 && c.own(kindRefuse) {
			c.due &^= dueRefuse
		}
		if c.due&(dueOffer|dueRefuse) == dueOffer { // it would be the answer to what is to be refused
			if s := c.setup(z.next); c.own(kindOffer, s.Append(nil)...) {
				c.due &^= dueOffer
			}
		}
		if c.due&dueTake != 0 && c.own(kindMove) {
			c.due = c.due&^dueTake | dueMove
			c.open = false
		}
	}
	if c.due&dueMove != 0 && c.err == nil {
		c.move()
	}
	if c.due&dueClose != 0 {
		c.bury()
	}
	return c.err
}

// answer prepares an offer of a ring as the peer wants it, or as near as possible. It returns
// false if there is none.
func (c *Channel) answer() bool {
	z := c.rz
	if z.next != nil {
		return true
	}
	if z.demand == 0 {
		return c.shrinkOwn()
	}
	if z.deaf > 0 {
		z.deaf--
		return false
	}
	i, _ := slices.BinarySearchFunc(z.steps, z.demand, func(r ring, n uint64) int {
		if uint64(r.bytes()) < n {
			return -1
		}
		return 1
	})
	for i = min(i, len(z.steps)-1); i >= 0 && z.steps[i].bytes() > z.now.bytes(); i-- {
		in := inRing{ring: z.steps[i]}
		if uint64(in.bytes()) > c.link.Caps().MaxMessage {
			continue
		}
		if !z.take(in.memory()) {
			z.budget.short()
			continue
		}
		in, err := openRing(c.link, c.ep, in.ring, false)
		if err != nil {
			z.give(in.memory())
			continue
		}
		c.memory += in.memory()
		z.next = &in
		c.due |= dueOffer
		return true
	}
	return false
}

// accept allocates the mirror of the ring that the peer has offered, or declines.
func (c *Channel) accept() {
	z := c.rz
	r := newRing(z.offer.Geometry, z.offer.BlockSize)
	n, first := mirrorMemory(&r), z.offer.Region == z.theirs
	fits := z.offer.Mode == c.peer.Mode && r.bytes() <= c.maxPeer && uint64(r.bytes()) <= c.link.Caps().MaxMessage
	if fits && !first && !z.take(n) {
		fits = false
		z.budget.short()
	}
	if fits {
		m, err := openMirror(c.link, &r, first && c.sparse)
		if err == nil {
			z.mirror = m
			c.memory += n
			return
		}
		if !first {
			z.give(n)
		}
	}
	c.due = c.due&^dueTake | dueDecline
	z.backOff()
}

// move continues with the peer's new ring when the link has sent everything in the old one.
func (c *Channel) move() {
	z := c.rz
	if !c.Settle() || !c.live || c.creditOut || c.first != c.staged {
		return
	}
	r := newRing(z.offer.Geometry, z.offer.BlockSize)
	before, ok := c.tx.Renew(r.Geometry)
	if !ok {
		return
	}
	old, n := mirror{c.out, c.outReg}, mirrorMemory(&c.txRing)
	if err := old.close(); err != nil {
		c.fail(err)
		return
	}
	c.memory -= n
	if c.peer.Region != z.theirs {
		z.give(n)
	}
	if z.budget != nil {
		z.budget.count(c.txRing.bytes(), r.bytes())
	}
	c.out, c.outReg, c.outKey, z.mirror = z.mirror.mem, z.mirror.reg, z.mirror.reg.LKey(), mirror{}
	imm := c.peer.Imm
	z.before, c.peer, c.txRing = before, z.offer, r
	c.peer.Imm = imm
	c.cursorSent, c.signaled = c.tx.Head(), c.tx.Head()
	if int(c.listed) < z.pieces {
		c.allot(z.batch, z.pieces)
	}
	c.lax, c.open = true, true
	c.due &^= dueMove
	z.lapses, z.skip = 0, 0
	z.moves++
	if z.later.BlockSize != 0 {
		z.offer, z.later = z.later, Setup{}
		c.due |= dueTake
	}
	_ = c.applyCredit() // c.err keeps a failure
}

// bury withdraws rings that the peer no longer uses. While the link still uses one it stays.
func (c *Channel) bury() error {
	z := c.rz
	var errs []error
	z.dying = slices.DeleteFunc(z.dying, func(in inRing) bool {
		err := in.reg.Close()
		if err != nil {
			errs = append(errs, err)
			return false
		}
		z.give(in.memory())
		c.memory -= in.memory()
		return true
	})
	if len(z.dying) == 0 {
		c.due &^= dueClose
	}
	return errors.Join(errs...)
}

// closeRings withdraws all rings, when neither the link nor the peer uses them.
func (c *Channel) closeRings() error {
	z := c.rz
	if z.next != nil {
		c.leave(*z.next)
		z.next = nil
	}
	c.leave(z.now)
	z.now = z.home
	err := errors.Join(c.bury(), z.home.reg.Close())
	out := mirror{c.out, c.outReg}
	if out.reg != nil {
		if err2 := out.close(); err2 != nil {
			err = errors.Join(err, err2)
		} else {
			if c.out, c.outReg = nil, nil; c.peer.Region != z.theirs {
				z.give(mirrorMemory(&c.txRing))
			}
		}
	}
	if z.mirror.reg != nil {
		r := newRing(z.offer.Geometry, z.offer.BlockSize)
		if err2 := z.mirror.close(); err2 != nil {
			err = errors.Join(err, err2)
		} else if z.offer.Region != z.theirs {
			z.give(mirrorMemory(&r))
		}
	}
	return err
}

// setup describes a ring of this side.
func (c *Channel) setup(in *inRing) Setup {
	k := in.reg.Key()
	k.Len = uint64(len(in.mem)) // a link may have rounded the length up
	return Setup{Mode: c.Mode(), Geometry: in.Geometry, BlockSize: in.size, Imm: c.imm, Region: k}
}
