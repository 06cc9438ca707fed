package eager

import "encoding/binary"

// aside handles a message of the channel itself; first is the part of it in its first block,
// and formed reports whether it may have this kind of block. why is the reason why it is invalid.
func (rc *receiver) aside(kind uint8, formed bool, first []byte) (why string) {
	z := rc.rz
	var b [SetupSize]byte
	n := copy(b[:], first) // the peer may change the ring
	if !formed || len(first) > len(b) {
		return "malformed message about rings"
	}
	switch {
	case kind == kindAsk && n == 8:
		if z.demand = binary.LittleEndian.Uint64(b[:]); z.next == nil { // else that offer is the answer
			rc.due |= dueAnswer
		}
	case kind == kindOffer && n == SetupSize:
		s, _, err := ParseSetup(b[:])
		if err != nil {
			return err.Error()
		}
		if rc.due&(dueTake|dueDecline) != 0 || z.later.BlockSize != 0 {
			return "unexpected offer of a ring"
		}
		if z.asked = false; rc.due&dueMove != 0 {
			z.later = s // the peer has seen the end of the present ring before this side's link has
			break
		}
		z.offer = s
		rc.due = rc.due&^dueAsk | dueTake
	case kind == kindRefuse && n == 0:
		if !z.asked || rc.due&dueAsk != 0 {
			return "refusal of a ring that was not asked for"
		}
		z.asked = false
		z.backOff()
	case (kind == kindMove || kind == kindDecline) && n == 0:
		if z.next == nil || rc.due&dueOffer != 0 {
			return "answer to no offer of a ring"
		}
	default:
		return "unknown message about rings"
	}
	rc.cur.k = 0
	rc.rx.Consume(1)
	switch kind {
	case kindMove:
		rc.enter(*z.next)
	case kindDecline:
		z.spurns = min(z.spurns+1, 4)
		z.deaf = 1 << z.spurns
		rc.leave(*z.next)
		z.next = nil
	}
	return ""
}

// enter continues with the ring that was offered: the peer writes nothing more to the present
// one.
func (rc *receiver) enter(in inRing) {
	z := rc.rz
	rc.leave(z.now)
	if z.budget != nil {
		z.budget.count(rc.rxRing.bytes(), in.bytes())
	}
	z.now, z.next, z.spurns = in, nil, 0
	rc.rx.Renew(in.Geometry)
	rc.in, rc.rxRing, rc.end = in.mem, in.ring, in.size
	if rc.left != 0 {
		rc.left = rc.rx.Next() + uint64(in.Blocks)
	}
	z.moved++
}

// leave gives a ring back that the peer no longer uses, unless it is the first one.
func (c *core) leave(in inRing) {
	if z := c.rz; in.reg != z.home.reg {
		z.dying = append(z.dying, in)
		c.due |= dueClose
	}
}
