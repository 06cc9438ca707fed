package rma

import (
	"slices"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/bringup"
	"github.com/seed33544411/rma/internal/onesided"
)

// requests is this side's end of the way in which a peer is asked to accumulate:
// copies of the slots in the peer's memory. It is made with the first one.
type requests struct {
	state way
	err   error
	mine  fabric.Region
	there fabric.RemoteKey
	free  uint16 // bit s: nothing of slot s is under way
	slots [onesided.Slots]asked
}

type way uint8

const (
	wayNone way = iota
	wayOpening
	wayOpen
	wayFailed
)

// asked is what a slot is used for.
type asked struct {
	o     *op // whose acknowledgement is missing
	write bool
}

// ask makes the next request of an accumulate. It returns false if there is no slot, or
// no way yet.
func (t *initiator) ask(p *Peer, o *op, m *made, wr *fabric.WR) bool {
	r := &p.asks
	switch {
	case r.state == wayNone:
		t.openWay(p)
		return false
	case r.state != wayOpen || r.free == 0 || t.used == pieces:
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
	wr.Local = t.sges[t.used : t.used+1 : t.used+1]
	wr.Local[0] = fabric.NewSGE(mem, r.mine.LKey())
	wr.RemoteAddr, wr.RKey = r.there.Addr+uint64(s*onesided.SlotSize), r.there.RKey
	wr.Flags |= fabric.FlagNotify
	wr.Imm = note(noteRequest, s, 0)
	t.used++
	m.slot, m.n = uint8(s), int32(n)
	r.free &^= 1 << s
	if a.pos == 0 && !a.begun {
		a.begun = true
		p.reduces = append(p.reduces, o)
	}
	if a.pos += n; a.pos == len(a.src) {
		o.more.phase = phaseEnd
	}
	return true
}

// asked notes that the link took a request.
func (r *requests) asked(m *made) {
	r.slots[m.slot] = asked{o: m.o, write: true}
	m.o.pending++ // the acknowledgement
}

// unask undoes the making of a request.
func (t *initiator) unask(m *made) {
	a := &m.o.more.acc
	if a.pos -= int(m.n); a.pos == 0 {
		t.endReduce(m.o)
	}
	m.o.peer.asks.free |= 1 << m.slot
}

// written notes the completion of the write to a slot.
func (r *requests) written(s uint8) {
	if a := &r.slots[s]; a.write {
		a.write = false
		if a.o == nil {
			r.free |= 1 << s
		}
	}
}

// acknowledged takes the target's word for a slot. What nobody waits for is
// ignored: a peer that says so confuses nobody but itself.
func (t *initiator) acknowledged(p *Peer, s int, st onesided.Status) {
	r := &p.asks
	if s >= onesided.Slots || r.slots[s].o == nil {
		return
	}
	o := r.slots[s].o
	r.slots[s].o = nil
	if !r.slots[s].write {
		r.free |= 1 << s
	}
	if err := st.Err(); err != nil {
		t.note(o, err)
	}
	t.unpend(o)
	if p.posts.head != nil {
		t.wake(p)
	}
}

// unpend notes the end of something that o waits for.
func (t *initiator) unpend(o *op) {
	if o.pending--; o.pending == 0 && !o.queued {
		t.end(o)
	}
}

// endAsks ends accumulates whose acknowledgement will not come.
func (t *initiator) endAsks(p *Peer) {
	for s := range p.asks.slots {
		if o := p.asks.slots[s].o; o != nil {
			p.asks.slots[s].o = nil
			t.note(o, p.down)
			t.unpend(o)
		}
	}
}

// endReduce notes the end of an accumulate.
func (t *initiator) endReduce(o *op) {
	if o.more.acc.begun {
		o.more.acc.begun = false
		p := o.peer
		p.reduces = slices.DeleteFunc(p.reduces, func(x *op) bool { return x == o })
	}
}

// openWay has the peer make memory for requests, and learns where it is. What is
// queued waits.
func (t *initiator) openWay(p *Peer) {
	e := p.eng
	p.asks.state = wayOpening
	p.acks = append(p.acks, note(noteOpen, 0, 0))
	t.wake(p)
	n := p.conn.Now()
	n.Go(func() {
		there, mine, err := p.findWay(n)
		e.prog.Do(func() {
			r := &p.asks
			r.mine, r.there = mine, there
			if r.state, r.free = wayOpen, 1<<onesided.Slots-1; err != nil {
				r.state, r.free, r.err = wayFailed, 0, err
			}
			t.wake(p)
		})
	})
}

// findWay learns where the peer's slots are, and makes their copies.
func (p *Peer) findWay(n *bringup.Connection) (there fabric.RemoteKey, mine fabric.Region, err error) {
	e := p.eng
	b, err := n.Published(n.Life(), "accumulate")
	if err == nil {
		if there, _, err = fabric.ParseRemoteKey(b); err == nil && there.Len < onesided.Slots*onesided.SlotSize {
			err = ErrBadKey
		}
	}
	if err == nil {
		mine, err = e.links[p.link].Alloc(onesided.Slots*onesided.SlotSize, 0)
	}
	return there, mine, e.jobCause(p.rank, err)
}

// self carries out an accumulate of this rank at itself.
func (t *initiator) self(p *Peer, o *op) {
	a := &o.more.acc
	a.req.Count = uint32(len(a.src) / a.req.Type.Size())
	if err := a.req.Apply(p.eng.memory, a.src); err != nil {
		t.note(o, onesided.StatusOf(err).Err())
	}
	t.end(o)
}
