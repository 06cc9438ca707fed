package initiator

import (
	"errors"
	"math/bits"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/mr"
)

// allSlots is requester.free with no slot in use.
const allSlots = 1<<onesided.Slots - 1

// slot returns a free slot and its local copy, or false if no slot is free.
func (r *requester) slot(c *chain) (s int, mem []byte, ok bool) {
	if r.state != wayOpen || r.free == 0 || c.used == maxPieces {
		return 0, nil, false
	}
	s = bits.TrailingZeros16(r.free)
	return s, r.mine.Bytes()[s*onesided.SlotSize:][:onesided.SlotSize], true
}

// write sets wr to the write of a request of n bytes to slot s.
func (r *requester) write(c *chain, m *made, wr *fabric.WR, s int, mem []byte, note uint32) {
	wr.ID = uint64(s+1) << slotShift
	wr.Local = c.piece(fabric.NewSGE(mem, r.mine.LKey()))
	wr.RemoteAddr, wr.RKey = r.there.Addr+uint64(s*onesided.SlotSize), r.there.RKey
	wr.Flags |= fabric.FlagNotify
	wr.Imm = note
	m.slot = uint8(s + 1)
	r.free &^= 1 << s
}

// build makes the next request of an accumulate. It returns false if no slot is free or the
// slots are not set up yet.
func (r *requester) build(c *chain, o *Op, m *made, wr *fabric.WR) bool {
	if r.state == wayNone || r.state == wayFailed {
		r.open()
	}
	s, mem, ok := r.slot(c)
	if !ok {
		r.waits, r.use = o, o.Gen()&^1
		return false
	}
	a := &o.more.acc
	if a.how.Type != 0 {
		r.pieces(c, o, m, wr, s, mem)
		return true
	}
	n := min(len(a.src)-a.pos, onesided.MaxData&^7)
	a.req.Addr = o.remote + uint64(a.pos)
	a.req.Count = uint32(n / a.req.Type.Size())
	mem = mem[:onesided.HeaderSize+n]
	a.req.Append(mem[:0])
	copy(mem[onesided.HeaderSize:], a.src[a.pos:])
	r.write(c, m, wr, s, mem, note(noteRequest, s, 0))
	r.combines(o, m, n)
	if a.pos == len(a.src) {
		o.more.phase = phaseEnd
	}
	return true
}

// pieces makes the next request of an accumulate of several pieces: a group.
func (r *requester) pieces(c *chain, o *Op, m *made, wr *fabric.WR, s int, mem []byte) {
	x, g := o.more, &r.q.eng.grouper
	g.View(&x.cur, 1, x.acc.how.MaxPiece())
	n, pieces, bytes := g.MakeAccumulate(&x.cur, x.acc.how, mem, r.mine.Key().RKey)
	r.write(c, m, wr, s, mem[:n], note(noteGroup, s, 0))
	m.group = group{pieces: int32(pieces), bytes: int32(bytes), answer: int32(n), from: m.mark}
	r.combines(o, m, bytes)
	if x.cur.Done() {
		x.phase = phaseEnd
	}
}

// combines records that a request of n bytes of an accumulate was made.
func (r *requester) combines(o *Op, m *made, n int) {
	a := &o.more.acc
	m.n = int32(n)
	if a.pos == 0 && !a.begun {
		a.begun = true
		r.begun = append(r.begun, o)
	}
	a.pos += n
}

// took records that the link took a request.
func (r *requester) took(m *made) {
	r.slots[m.slot-1] = asked{o: m.o, write: true, group: m.group}
	m.o.pending++ // the acknowledgement
	if m.group.pieces > 0 && m.o.kind != Accumulate {
		r.q.counts.Groups++
		m.o.loosen()
		r.q.groups.took(m.o.kind, &m.group, &m.o.more.grouped)
	}
}

// giveBack undoes build.
func (r *requester) giveBack(m *made) {
	r.free |= 1 << (m.slot - 1)
	if m.o.kind != Accumulate {
		return
	}
	a := &m.o.more.acc
	if a.pos -= int(m.n); a.pos == 0 {
		r.ended(m.o)
	}
}

// acknowledged handles the target's acknowledgement of a slot. An acknowledgement of an
// unused slot is ignored: it harms only the peer that sends it.
func (r *requester) acknowledged(s int, st onesided.Status) {
	if s >= onesided.Slots || r.slots[s].o == nil {
		return
	}
	o, q := r.slots[s].o, r.q
	r.slots[s].o = nil
	if !r.slots[s].write {
		r.free |= 1 << s
	}
	err := st.Err()
	if err != nil {
		o.note(err)
	}
	grouped, alone := r.slots[s].pieces > 0, o.kind == Accumulate
	if grouped {
		r.answered(o, s, err == nil)
	}
	o.unpend()
	switch {
	case grouped && err != nil && !alone:
		q.host.Sever(err) // as the link does when the target refuses a request
	case q.posts.head != nil:
		q.wake()
	}
}

// end ends accumulates whose acknowledgement will not arrive.
func (r *requester) end(err error) {
	for s := range r.slots {
		if o := r.slots[s].o; o != nil {
			r.slots[s].o = nil
			if r.slots[s].pieces > 0 {
				r.groupEnded(o)
			}
			o.note(err)
			o.unpend()
		}
	}
}

// open asks the peer to create slots and fetches their address. Accumulates wait meanwhile. If
// that fails, perhaps for lack of memory here, the one that waits first fails; the next tries again.
func (r *requester) open() {
	q := r.q
	r.state = wayOpening
	q.control.push(notice{imm: note(noteOpen, 0, 0)})
	q.host.FetchSlots(func(val []byte, err error) {
		there, mine, err := r.makeCopies(val, err)
		q.eng.prog.Do(func() {
			r.mine, r.there = mine, there
			if r.state, r.free = wayOpen, allSlots; err != nil {
				r.state, r.free = wayFailed, 0
				if o := r.waits; o != nil && o == q.posts.head && o.kind == Accumulate && o.InFlight(r.use) {
					q.posts.spoil(err)
				}
			}
			r.waits = nil
			q.wake()
		})
	})
}

// makeCopies creates local copies of the peer's slots, which val describes.
func (r *requester) makeCopies(val []byte, err error) (there fabric.RemoteKey, mine fabric.Region, _ error) {
	if err != nil {
		return there, nil, err
	}
	there, _, err = fabric.ParseRemoteKey(val)
	if err == nil && there.Len < onesided.Slots*onesided.SlotSize {
		err = fabric.ErrBadKey
	}
	if err == nil {
		mine, err = r.q.link.Alloc(onesided.Slots*onesided.SlotSize, fabric.AccessLocalWrite|fabric.AccessRemoteWrite)
	}
	return there, mine, err
}

// takes reports whether the next pieces of o, a put or a get, are sent as a group.
func (r *requester) takes(o *Op) bool {
	q, x := r.q, o.more
	g := &q.groups
	if g.params == nil || o.kind != Put && o.kind != Get || q.own || r.state == wayFailed || x.cur.Pos() < x.chained || x.cur.Done() {
		return false
	}
	at := x.cur.Pos() + 1
	if r.free == 0 && x.waits == at {
		return true // View is for a group that has a slot
	}
	n, bytes := q.eng.grouper.View(&x.cur, q.pieces, q.max)
	if n > 1 {
		switch pp := g.plan(o.kind, n, bytes); {
		case pp.Way == logp.Chain:
			g.pace.passed()
		case r.state == wayOpen:
			x.waits = at
			return true
		case r.state == wayNone:
			r.open() // for later operations: this one is sent as a chain
		}
	}
	x.chained = x.cur.Pos() + uint64(max(bytes, 1))
	return false
}

// group makes a group of the pieces that takes has selected. It returns false if no slot is
// free.
func (r *requester) group(c *chain, o *Op, m *made, wr *fabric.WR) bool {
	s, mem, ok := r.slot(c)
	if !ok {
		return false
	}
	x := o.more
	n, pieces, bytes := r.q.eng.grouper.Make(&x.cur, o.kind == Get, mem, r.mine.Key().RKey)
	r.write(c, m, wr, s, mem[:n], note(noteGroup, s, 0))
	c.puts = c.puts || o.kind == Put
	m.group = group{pieces: int32(pieces), bytes: int32(bytes), answer: int32(n), from: m.mark}
	if x.cur.Done() {
		x.phase = phaseData.after(o)
	}
	return true
}

// answered handles the acknowledgement of the group in slot s.
func (r *requester) answered(o *Op, s int, done bool) {
	a := &r.slots[s]
	r.groupEnded(o)
	if !done || o.kind == Put || o.kind == Accumulate && !o.more.acc.how.Fetch {
		return
	}
	answer := r.mine.Bytes()[s*onesided.SlotSize+int(a.answer):][:a.bytes]
	if o.kind == Get {
		onesided.TakeAnswer(&o.more.cur, a.from, answer)
	} else {
		copy(o.more.acc.old[a.from.Pos():], answer)
	}
}

// groupEnded records that a group of o is no longer in flight.
func (r *requester) groupEnded(o *Op) {
	if o.kind != Accumulate {
		r.q.groups.ended(o.kind == Put, &o.more.grouped)
	}
}

// self executes an accumulate whose target is this rank.
func (r *requester) self(o *Op) (left rest) {
	a, q := &o.more.acc, r.q
	var err error
	if a.how.Type == 0 {
		n := min(len(a.src), carriedTurn)
		a.req.Addr, a.req.Count = o.remote, uint32(n/a.req.Type.Size())
		if err = a.req.Apply(q.eng.memory, a.src); err == nil {
			left = o.combined(n)
		}
	} else {
		var held *mr.Registration
		_, left = o.combine(func(key uint32, addr uint64, n int) (mem []byte) {
			if held != nil {
				_ = held.Release() // if the region was closed meanwhile, Close reports failures
			}
			if held, err = q.eng.memory.HoldKey(q.index, key); err == nil {
				mem, err = held.Part(addr, uint64(n), a.how.Needs())
			}
			return mem
		})
		if held != nil {
			_ = held.Release()
		}
	}
	if err != nil {
		o.note(onesided.StatusOf(err).Err())
	}
	return left
}

// ErrMisbehaves is the error of a peer that uses more slots than it has.
var ErrMisbehaves = errors.New("peer violated the protocol")

// maxNotes bounds the acknowledgements that a peer may have outstanding: a correct peer
// needs no more than it has slots.
const maxNotes = 2 * onesided.Slots

// serve executes the request of the given kind in a slot and posts its acknowledgement.
func (s *server) serve(kind, slot int) {
	q := s.q
	if s.region == nil || slot >= onesided.Slots || q.down != nil || s.over {
		return // the peer has no such slot
	}
	if len(q.control.list) >= maxNotes {
		q.host.Sever(ErrMisbehaves)
		return
	}
	mem := s.region.Bytes()[slot*onesided.SlotSize:][:onesided.SlotSize]
	ack := notice{imm: note(noteAck, slot, onesided.StatusOK)}
	var err error
	if kind == noteRequest {
		err = onesided.Serve(q.eng.memory, mem)
	} else {
		alone := onesided.IsAccumulate(mem)
		ack.answer, err = q.link.groups.Serve(mem)
		ack.local = fabric.SGE{Addr: fabric.Addr(mem), Len: ack.answer.Len, LKey: s.region.LKey()}
		if s.over = err != nil && !alone; s.over {
			q.host.Refused(onesided.StatusOf(err).Err())
		}
	}
	ack.imm |= uint32(onesided.StatusOf(err))
	q.counts.Served++
	q.control.push(ack)
}

// open creates the slots that a peer requests and sends it their address. If there is no
// memory, the peer's accumulates fail.
func (s *server) open() {
	if s.begun {
		return
	}
	s.begun = true
	q := s.q
	q.host.PublishSlots(func() ([]byte, error) {
		reg, err := q.link.Alloc(onesided.Slots*onesided.SlotSize, fabric.AccessLocalWrite|fabric.AccessRemoteWrite)
		if err != nil {
			return nil, err
		}
		q.eng.prog.Do(func() { s.region = reg })
		return reg.Key().Append(nil), nil
	})
}
