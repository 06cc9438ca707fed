package initiator

import (
	"errors"
	"slices"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/onesided"
)

// accumulate is what an Accumulate needs.
type accumulate struct {
	src   []byte
	pos   int  // what has been handed to the link
	begun bool // on requester.begun
	req   onesided.Request
}

// requester is this side's end of the way in which a peer is asked to accumulate:
// copies of the slots in the peer's memory. It is made with the first accumulate.
type requester struct {
	q     *Queue
	state way
	err   error
	mine  fabric.Region
	there fabric.RemoteKey
	free  uint16 // bit s: nothing of slot s is under way
	slots [onesided.Slots]asked
	begun []*Op // accumulates of which some is under way
}

// way is the state of a requester.
type way uint8

const (
	wayNone way = iota
	wayOpening
	wayOpen
	wayFailed
)

// asked is what a slot is used for.
type asked struct {
	o     *Op  // whose acknowledgement is missing
	write bool // and its request is not complete
}

// build makes the next request of an accumulate. It returns false if there is no slot, or
// no way yet.
func (r *requester) build(c *chain, o *Op, m *made, wr *fabric.WR) bool {
	switch {
	case r.state == wayNone:
		r.open()
		return false
	case r.state != wayOpen || r.free == 0 || c.used == maxPieces:
		return false
	}
	s := 0
	for r.free>>s&1 == 0 {
		s++
	}
	a := &o.more.acc
	n := min(len(a.src)-a.pos, onesided.MaxData&^7)
	a.req.Addr = o.remote + uint64(a.pos)
	a.req.Count = uint32(n / a.req.Type.Size())
	mem := r.mine.Bytes()[s*onesided.SlotSize:][:onesided.HeaderSize+n]
	a.req.Append(mem[:0])
	copy(mem[onesided.HeaderSize:], a.src[a.pos:])
	wr.Local = c.piece(fabric.NewSGE(mem, r.mine.LKey()))
	wr.RemoteAddr, wr.RKey = r.there.Addr+uint64(s*onesided.SlotSize), r.there.RKey
	wr.Flags |= fabric.FlagNotify
	wr.Imm = note(noteRequest, s, 0)
	m.slot, m.n = uint8(s), int32(n)
	r.free &^= 1 << s
	if a.pos == 0 && !a.begun {
		a.begun = true
		r.begun = append(r.begun, o)
	}
	if a.pos += n; a.pos == len(a.src) {
		o.more.phase = phaseEnd
	}
	return true
}

// took notes that the link took a request.
func (r *requester) took(m *made) {
	r.slots[m.slot] = asked{o: m.o, write: true}
	m.o.pending++ // the acknowledgement
}

// giveBack undoes the making of a request.
func (r *requester) giveBack(m *made) {
	a := &m.o.more.acc
	if a.pos -= int(m.n); a.pos == 0 {
		r.ended(m.o)
	}
	r.free |= 1 << m.slot
}

// written notes the completion of the write to a slot.
func (r *requester) written(s uint8) {
	if a := &r.slots[s]; a.write {
		a.write = false
		if a.o == nil {
			r.free |= 1 << s
		}
	}
}

// acknowledged takes the target's word for a slot. An acknowledgement of nothing is
// ignored: a peer that sends one confuses nobody but itself.
func (r *requester) acknowledged(s int, st onesided.Status) {
	if s >= onesided.Slots || r.slots[s].o == nil {
		return
	}
	o := r.slots[s].o
	r.slots[s].o = nil
	if !r.slots[s].write {
		r.free |= 1 << s
	}
	if err := st.Err(); err != nil {
		o.note(err)
	}
	o.unpend()
	if r.q.posts.head != nil {
		r.q.wake()
	}
}

// end ends accumulates whose acknowledgement will not come.
func (r *requester) end(err error) {
	for s := range r.slots {
		if o := r.slots[s].o; o != nil {
			r.slots[s].o = nil
			o.note(err)
			o.unpend()
		}
	}
}

// ended notes that nothing of an accumulate is under way any more.
func (r *requester) ended(o *Op) {
	if o.more.acc.begun {
		o.more.acc.begun = false
		r.begun = slices.DeleteFunc(r.begun, func(x *Op) bool { return x == o })
	}
}

// among reports whether one of the 8 bytes at addr belongs to an accumulate under way.
func (r *requester) among(addr uint64) bool {
	for _, o := range r.begun {
		if addr+8 > o.remote && addr < o.remote+uint64(len(o.more.acc.src)) {
			return true
		}
	}
	return false
}

// open has the peer make slots, and learns where they are. Accumulates wait meanwhile.
func (r *requester) open() {
	q := r.q
	r.state = wayOpening
	q.control.push(note(noteOpen, 0, 0))
	q.host.FetchSlots(func(val []byte, err error) {
		there, mine, err := r.makeCopies(val, err)
		q.eng.prog.Do(func() {
			r.mine, r.there = mine, there
			if r.state, r.free = wayOpen, 1<<onesided.Slots-1; err != nil {
				r.state, r.free, r.err = wayFailed, 0, err
			}
			q.wake()
		})
	})
}

// makeCopies makes the copies of the peer's slots, of which it has said val.
func (r *requester) makeCopies(val []byte, err error) (there fabric.RemoteKey, mine fabric.Region, _ error) {
	if err != nil {
		return there, nil, err
	}
	there, _, err = fabric.ParseRemoteKey(val)
	if err == nil && there.Len < onesided.Slots*onesided.SlotSize {
		err = fabric.ErrBadKey
	}
	if err == nil {
		mine, err = r.q.link.Alloc(onesided.Slots*onesided.SlotSize, 0)
	}
	return there, mine, err
}

// self carries out an accumulate of this rank at itself.
func (r *requester) self(o *Op) {
	a := &o.more.acc
	a.req.Count = uint32(len(a.src) / a.req.Type.Size())
	if err := a.req.Apply(r.q.eng.memory, a.src); err != nil {
		o.note(onesided.StatusOf(err).Err())
	}
	o.end()
}

// ErrMisbehaves says that a peer asks for more than it has slots for.
var ErrMisbehaves = errors.New("the peer does not keep to the protocol")

// server is this side's end of the way in which a peer asks it to accumulate.
type server struct {
	q      *Queue
	begun  bool
	region fabric.Region // slots that the peer writes to; nil as long as there are none
}

// maxNotes bounds what a peer may have this side acknowledge at once: as many as there
// are slots, unless it does not keep to the protocol.
const maxNotes = 2 * onesided.Slots

// serve carries out the request in a slot, and has it acknowledged.
func (s *server) serve(slot int) {
	q := s.q
	if s.region == nil || slot >= onesided.Slots || q.down != nil {
		return // nobody gave the peer a slot of that number
	}
	err := onesided.Serve(q.eng.memory, s.region.Bytes()[slot*onesided.SlotSize:][:onesided.SlotSize])
	if len(q.control.list) >= maxNotes {
		q.host.Sever(ErrMisbehaves)
		return
	}
	q.counts.Served++
	q.control.push(note(noteAck, slot, onesided.StatusOf(err)))
}

// open makes the slots that a peer asks for, and tells it where they are. Without memory
// the peer's accumulates fail.
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
