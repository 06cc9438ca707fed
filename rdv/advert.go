package rdv

import (
	"fmt"
	"math"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/flowctl"
	"github.com/seed33544411/rma/scatter"
)

// States of an advert of ours.
const (
	mineFree    uint8 = iota
	mineOpen          // the peer's answer ends it
	mineRevoked       // revocation queued or sent: the answer still ends it
)

// myAdvert is a destination of ours that the peer may write until it answers,
// or until the endpoint is down.
type myAdvert struct {
	token uint64
	len   uint32
	gen   uint16
	state uint8
}

// States of an advert of the peer.
const (
	theirsFree     uint8 = iota
	theirsOpen           // Write or Decline is due
	theirsWriting        // writes are being posted
	theirsAnswered       // the answer waits for room in the ring
)

type theirAdvert struct {
	want  Want // as advertised; once written, what the answer is going to say
	key   fabric.RemoteKey
	gen   uint16
	state uint8
	late  bool // a revocation may still arrive for the generation
}

// doneNote is what a done says besides how many bytes were written.
type doneNote struct {
	pos uint64
	tag uint32
}

// writeJob writes into an advert. It outlives the advert: the peer may hear of
// the data, and use the slot again, before the completion is seen here.
type writeJob struct {
	plan     scatter.Plan
	src      []fabric.SGE
	region   [1]scatter.Region
	token    uint64
	advert   ID
	bytes    uint32
	inflight int
	busy     bool
}

// Advertise offers the peer a destination for what w says (uninterpreted): k.Len
// bytes, at most 4 GiB - 1, registered for remote writing. Handler.Filled with
// token ends the advert; until then the memory is the peer's to write. Short
// path.
func (c *Channel) Advertise(w Want, k fabric.RemoteKey, token uint64) (ID, Result, error) {
	if err := c.ready(); err != nil {
		return 0, Busy, err
	}
	if k.Len > math.MaxUint32 {
		return 0, Busy, fmt.Errorf("advertise %d bytes: %w: %d", k.Len, ErrTooLarge, uint32(math.MaxUint32))
	}
	c.flushControl()
	if c.control.n > 0 || len(c.mineFree) == 0 {
		c.stats.Busy++
		return 0, Busy, c.err
	}
	slot := int(c.mineFree[len(c.mineFree)-1])
	a := &c.mine[slot]
	id := makeID(slot, a.gen+1)
	c.payload = appendAdvert(c.payload[:0], w, k)
	if !c.send(KindAdvert, id, w.Tag, c.payload) {
		c.stats.Busy++
		return 0, Busy, c.err
	}
	c.mineFree = c.mineFree[:len(c.mineFree)-1]
	a.gen++
	a.state, a.token, a.len = mineOpen, token, uint32(k.Len)
	return id, Accepted, nil
}

// WhyRevoked is the reason of an answer to an advert that was given back because
// it was revoked: answers that crossed the revocation have another.
const WhyRevoked = 1 << 30

// Revoke asks for an advert of ours back. Filled says what became of it:
// ErrCancelled if it was not used, with WhyRevoked if the peer gave it back. ErrHandle means that it is over. Short path.
func (c *Channel) Revoke(id ID) error {
	a := c.findMine(id)
	switch {
	case a == nil:
		return fmt.Errorf("revoke %v: %w", id, ErrHandle)
	case c.err != nil || a.state == mineRevoked:
		return c.err
	}
	a.state = mineRevoked
	c.control.push(ctl{KindRevoke, id, 0})
	c.Nudge() // to make room, if it has to wait
	c.flushControl()
	return c.err
}

func (c *Channel) findMine(id ID) *myAdvert {
	if id.slot() >= len(c.mine) {
		return nil
	}
	if a := &c.mine[id.slot()]; a.state != mineFree && a.gen == id.gen() {
		return a
	}
	return nil
}

// onDone ends an advert of ours that was written.
func (c *Channel) onDone(id ID, n uint32, payload []byte) error {
	a := c.findMine(id)
	note, why := parseDone(payload)
	switch {
	case why != nil:
		return &ProtocolError{KindDone, id, why, uint64(len(payload)), doneSize}
	case a == nil:
		return &ProtocolError{KindDone, id, ErrUnknownID, uint64(id), uint64(len(c.mine))}
	case n > a.len:
		return &ProtocolError{KindDone, id, ErrSize, uint64(n), uint64(a.len)}
	}
	c.endAdvert(id.slot(), Answer{Bytes: n, Pos: note.pos, Tag: note.tag}, nil)
	return nil
}

// onDecline ends an advert of ours that was not.
func (c *Channel) onDecline(id ID, why uint32) error {
	a := c.findMine(id)
	switch {
	case a == nil:
		return &ProtocolError{KindDecline, id, ErrUnknownID, uint64(id), uint64(len(c.mine))}
	case a.state == mineRevoked:
		c.endAdvert(id.slot(), Answer{Why: why}, ErrCancelled)
	default:
		c.endAdvert(id.slot(), Answer{Why: why}, ErrDeclined)
	}
	return nil
}

func (c *Channel) endAdvert(slot int, x Answer, err error) {
	a := &c.mine[slot]
	a.state = mineFree
	c.mineFree = append(c.mineFree, uint16(slot))
	c.h.Filled(a.token, x, err)
}

// onAdvert takes a destination of the peer.
func (c *Channel) onAdvert(id ID, tag uint32, payload []byte) error {
	if id.slot() >= len(c.theirs) {
		return &ProtocolError{KindAdvert, id, ErrTooMany, uint64(id.slot()), uint64(len(c.theirs))}
	}
	a := &c.theirs[id.slot()]
	if a.state != theirsFree || id.gen() != a.gen+1 {
		return &ProtocolError{KindAdvert, id, ErrIDReused, uint64(id.gen()), uint64(a.gen + 1)}
	}
	want, key, why := parseAdvert(payload)
	if why != nil {
		return &ProtocolError{KindAdvert, id, why, uint64(len(payload)), advertSize}
	}
	want.Tag = tag
	*a = theirAdvert{want: want, key: key, gen: id.gen(), state: theirsOpen, late: true}
	c.h.Advertised(a.describe(id))
	return nil
}

func (a *theirAdvert) describe(id ID) Advert {
	return Advert{Want: a.want, Len: uint32(a.key.Len), ID: id}
}

// onRevoke takes an advert back if it was not used yet. One that was answered a
// moment ago may still be revoked, in vain.
func (c *Channel) onRevoke(id ID) error {
	if id.slot() >= len(c.theirs) {
		return &ProtocolError{KindRevoke, id, ErrUnknownID, uint64(id.slot()), uint64(len(c.theirs))}
	}
	a := &c.theirs[id.slot()]
	if a.gen != id.gen() || !a.late {
		return &ProtocolError{KindRevoke, id, ErrUnknownID, uint64(id.gen()), uint64(a.gen)}
	}
	a.late = false
	if a.state == theirsOpen {
		if c.h.Revoked(a.describe(id)) {
			c.decline(a, id, WhyRevoked)
		}
	}
	return nil
}

func (c *Channel) decline(a *theirAdvert, id ID, why uint32) {
	a.state = theirsAnswered
	c.control.push(ctl{KindDecline, id, why})
}

func (c *Channel) findTheirs(id ID) *theirAdvert {
	if id.slot() >= len(c.theirs) {
		return nil
	}
	if a := &c.theirs[id.slot()]; a.state == theirsOpen && a.gen == id.gen() {
		return a
	}
	return nil
}

// Decline answers an advert of the peer that is not going to be used; why travels
// with it, uninterpreted. ErrHandle means that it was revoked or answered. Short
// path.
func (c *Channel) Decline(id ID, why uint32) error {
	a := c.findTheirs(id)
	switch {
	case c.err != nil:
		return c.err
	case a == nil:
		return fmt.Errorf("decline %v: %w", id, ErrHandle)
	}
	c.decline(a, id, why)
	c.flushControl()
	return c.err
}

// Write answers an advert of the peer with data: the pieces of src, in order,
// are written to its front, and the peer is told behind them, with pos and tag of
// the message (uninterpreted). The list is copied; the memory is the channel's until Handler.Sent with token, which may
// come from within the call if there is nothing to write. ErrTooLarge and
// ErrHandle (revoked or answered) concern this call only; the advert stays.
// Short path.
func (c *Channel) Write(id ID, pos uint64, tag uint32, src []fabric.SGE, token uint64) (Result, error) {
	if err := c.ready(); err != nil {
		return Busy, err
	}
	a := c.findTheirs(id)
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
	if len(c.jobsFree) == 0 {
		c.stats.Busy++
		return Busy, nil
	}
	slot := c.jobsFree[len(c.jobsFree)-1]
	c.jobsFree = c.jobsFree[:len(c.jobsFree)-1]
	j := &c.jobs[slot]
	j.busy, j.token, j.advert, j.bytes = true, token, id, uint32(n)
	a.want = Want{Pos: pos, Tag: tag}
	if n == 0 {
		a.state = theirsAnswered
		c.control.push(ctl{KindDone, id, 0})
		c.flushControl()
		c.endJob(int(slot), nil)
		return Accepted, nil
	}
	a.state = theirsWriting
	j.src = append(j.src[:0], src...)
	j.region[0] = scatter.Region{Addr: a.key.Addr, Len: uint32(n), RKey: a.key.RKey}
	j.plan.Reset(j.src, c.lim)
	j.plan.Feed(j.region[:], 0)
	c.turns.push(slot | turnWrite)
	return Accepted, nil
}

// MayWrite reports that Write has room for one more. Short path.
func (c *Channel) MayWrite() bool { return len(c.jobsFree) > 0 }

// MayAdvertise is how many more adverts there is room for: slots, and half of what
// the ring takes, so that announcements and answers are not held up. Short path.
func (c *Channel) MayAdvertise() int {
	return min(len(c.mineFree), c.ring.Free(flowctl.Control)/2)
}

// requestWrite builds one write of j.
func (c *Channel) requestWrite(j *writeJob, slot uint16) (more, ok bool) {
	w := c.wrs[c.staged : c.staged+1]
	j.plan.Next(fabric.OpWrite, w, c.sges[c.pieces:], 0) // writes are not bounded by Caps.MaxReads
	c.pieces += len(w[0].Local)
	w[0].ID = uint64(c.opt.IDTag+1)<<48 | idWrite | uint64(slot)<<idSlotShift
	w[0].Flags = fabric.FlagSignaled
	if j.plan.Done() {
		w[0].ID |= idEnd
	}
	c.staged++
	c.writes++
	j.inflight++
	return !j.plan.Done(), true
}

// endJob ends a write: no request uses its sources any more.
func (c *Channel) endJob(slot int, err error) {
	j := &c.jobs[slot]
	j.busy = false
	c.jobsFree = append(c.jobsFree, uint16(slot))
	c.h.Sent(j.token, err)
}
