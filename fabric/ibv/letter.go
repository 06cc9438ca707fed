package ibv

import (
	"encoding/binary"
	"errors"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/softlink"
	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/verbs"
)

// A device may take too few bytes inline. Then the payload of an inline write is copied into
// registered memory of the endpoint.
//
// A device may have no writes with immediate, or no atomics (iWARP has neither). Then the
// endpoint sends letters instead, messages of letterSize bytes, little-endian, which the
// peer's Poll reads; docs/wire.md has their layout.

const (
	letterSize = 32

	// maxAsks is the number of atomics that an endpoint may have asked its peer for. The
	// send queue has room for the answers to twice as many: the acknowledgement of an answer
	// may be seen later than what the peer asks after it.
	maxAsks = 16
)

// Kinds of letters.
const (
	letterNotify byte = 1 + iota
	letterFetchAdd
	letterCompareSwap
	letterAnswer
)

// letter is the content of a letter. The meaning of its numbers depends on the kind.
type letter struct {
	kind             byte
	key              uint32 // notify: immediate; asks: remote key; answer: fabric.Status
	addr             uint64 // notify: bytes written; answer: the value before
	compare, operand uint64
}

func (x *letter) put(b []byte) {
	binary.LittleEndian.PutUint32(b, uint32(x.kind))
	binary.LittleEndian.PutUint32(b[4:], x.key)
	binary.LittleEndian.PutUint64(b[8:], x.addr)
	binary.LittleEndian.PutUint64(b[16:], x.compare)
	binary.LittleEndian.PutUint64(b[24:], x.operand)
}

// readLetter parses a peer's letter, which is untrusted.
func readLetter(b []byte) (x letter, ok bool) {
	if len(b) != letterSize {
		return x, false
	}
	kind := binary.LittleEndian.Uint32(b)
	x = letter{kind: byte(kind), key: binary.LittleEndian.Uint32(b[4:]), addr: binary.LittleEndian.Uint64(b[8:]),
		compare: binary.LittleEndian.Uint64(b[16:]), operand: binary.LittleEndian.Uint64(b[24:])}
	return x, kind >= uint32(letterNotify) && kind <= uint32(letterAnswer)
}

// mailbox is the memory of an endpoint for letters and payloads: one for each slot of the
// send queue, then one for each receive.
//
// It keeps what the endpoint asked its peer for. Its methods are the owner's, and on nil, of a
// device that needs no mailbox, do nothing.
type mailbox struct {
	e      *endpoint
	mem    []byte  // letterSize for each of pieces
	reg    *region // mem
	pieces []verbs.SGE
	slots  int
	free   []uint32 // receives that are not posted
	asks   []ask    // at most maxAsks
}

func newMailbox(e *endpoint) (m *mailbox, err error) {
	slots, recvs := len(e.slots), e.recvs
	m = &mailbox{e: e, slots: slots, pieces: make([]verbs.SGE, slots+recvs), asks: make([]ask, 0, maxAsks), free: make([]uint32, recvs)}
	m.empty()
	if m.mem, err = offheap.Alloc((slots+recvs)*letterSize, offheap.Regions); err != nil {
		return nil, err
	}
	if m.reg, err = e.l.registerLocked(m.mem, fabric.AccessLocalWrite); err != nil {
		return nil, errors.Join(err, offheap.Free(m.mem, offheap.Regions))
	}
	for i := range m.pieces {
		m.pieces[i] = verbs.SGE{Addr: m.reg.Addr() + uint64(i*letterSize), Len: letterSize, LKey: m.reg.LKey()}
	}
	return m, nil
}

// move has the receives that are posted from now on use port x, the link's own if it is nil. The keys of requests are
// translated as those of others.
func (m *mailbox) move(x *spare) {
	if m == nil {
		return
	}
	key := m.reg.LKey()
	if x != nil {
		x.mu.RLock()
		key = x.twins[key].here.LKey()
		x.mu.RUnlock()
	}
	for i := m.slots; i < len(m.pieces); i++ {
		m.pieces[i].LKey = key
	}
}

// close releases the memory. Called with Link.mu held.
func (m *mailbox) close() error {
	if m == nil {
		return nil
	}
	if err := m.reg.forget(); err != nil {
		return err
	}
	return offheap.Free(m.mem, offheap.Regions)
}

// empty says that none of the receives is posted.
func (m *mailbox) empty() {
	if m == nil {
		return
	}
	m.free = m.free[:cap(m.free)]
	for i := range m.free {
		m.free[i] = uint32(i)
	}
}

// hold copies the payload of an inline write into slot i and returns its piece.
func (m *mailbox) hold(i int, list []fabric.SGE) []verbs.SGE {
	p := m.pieces[i : i+1]
	p[0].Len = uint32(softlink.Gather(m.mem[i*letterSize:][:letterSize], list))
	if p[0].Len == 0 {
		return nil
	}
	return p
}

// receive returns the work request of a receive that is not posted.
func (m *mailbox) receive(tag uint64) verbs.RecvWR {
	last := len(m.free) - 1
	i := m.free[last]
	m.free = m.free[:last]
	return verbs.RecvWR{ID: tag | uint64(i), SGL: m.pieces[m.slots+int(i):][:1]}
}

// emptied says that the device has completed a receive, and that its letter has been read.
func (m *mailbox) emptied(w *verbs.WC) {
	if m != nil && len(m.free) < cap(m.free) {
		m.free = append(m.free, uint32(w.ID))
	}
}

// read returns the letter in receive i.
func (m *mailbox) read(i, n uint32) (letter, bool) {
	if int(i) >= len(m.pieces)-m.slots || n > letterSize {
		return letter{}, false
	}
	return readLetter(m.mem[(m.slots+int(i))*letterSize:][:n])
}

// ask is an atomic that the peer was asked for.
type ask struct {
	id     uint64
	op     fabric.Op
	flags  fabric.Flags
	local  fabric.SGE
	seq    uint32 // its slot
	done   bool   // answered
	status fabric.Status
	value  uint64
}

// answered takes the peer's answer.
func (a *ask) answered(x *letter) {
	a.done, a.value = true, x.addr
	if fabric.Status(x.key) != fabric.StatusOK {
		a.status = fabric.StatusRemoteAccess
	}
}

// carries reports whether w needs a letter.
func (m *mailbox) carries(w *fabric.WR) bool {
	if m == nil {
		return false
	}
	if m.e.carry != nil { // which needs none
		return false
	}
	l := m.e.l
	return l.noAtomics && isAtomic(w.Op) || l.noImm && w.Op == fabric.OpWrite && w.Flags&fabric.FlagNotify != 0
}

// crowded reports whether w must wait for atomics that the peer was asked for: what is
// behind them would overtake them.
func (m *mailbox) crowded(w *fabric.WR) bool {
	if m == nil {
		return false
	}
	n := len(m.asks)
	return n > 0 && (!isAtomic(w.Op) || n == maxAsks || m.e.carry != nil)
}

// enclose takes a slot for x and returns the request that sends it.
func (m *mailbox) enclose(x letter, s slot) verbs.SendWR {
	e := m.e
	i := int(e.tail & e.mask())
	e.slots[i] = s
	x.put(m.mem[i*letterSize:])
	m.pieces[i].Len = letterSize
	d := verbs.SendWR{ID: e.tag | uint64(e.tail), Op: verbs.OpSend, SGL: m.pieces[i : i+1], Flags: verbs.SendSignaled}
	e.tail++
	e.unasked = 0
	return d
}

// stage appends w's letter to the chain.
func (m *mailbox) stage(w *fabric.WR) {
	e := m.e
	s, x := slot{id: w.ID, op: w.Op}, letter{kind: letterNotify, key: w.Imm, addr: w.Len()}
	if isAtomic(w.Op) {
		s.flags = slotAsk
		x = letter{kind: letterFetchAdd, key: w.RKey, addr: w.RemoteAddr, compare: w.Compare, operand: w.Operand}
		if w.Op == fabric.OpCompareSwap {
			x.kind = letterCompareSwap
		}
		m.asks = append(m.asks, ask{id: w.ID, op: w.Op, flags: w.Flags, local: w.Local[0], seq: e.tail})
	} else if w.Flags&fabric.FlagSignaled != 0 {
		s.flags = slotSignaled
	}
	d := m.enclose(x, s)
	if !e.l.soft && w.Flags&fabric.FlagFence != 0 {
		d.Flags |= verbs.SendFence
	}
	e.l.wrs[e.l.staged] = d
	e.l.staged++
}

// opened handles the letter in a completed receive. It reports whether it set c.
func (m *mailbox) opened(w *verbs.WC, c *fabric.Completion) bool {
	if m == nil {
		return false
	}
	e := m.e
	x, ok := m.read(uint32(w.ID), w.ByteLen)
	switch {
	case !ok:
	case x.kind == letterNotify && e.l.noImm:
		*c = fabric.Completion{EP: e.id, Op: fabric.OpNotify, Imm: x.key, Bytes: uint32(x.addr)}
		return true
	case x.kind == letterAnswer:
		for i := range m.asks {
			if a := &m.asks[i]; !a.done {
				a.answered(&x)
				m.settle()
				return false
			}
		}
	case x.kind != letterNotify && e.l.noAtomics && int(e.tail-e.head) < len(e.slots):
		m.answer(&x)
		return false
	}
	e.down(fabric.Completion{Op: fabric.OpDown, Status: fabric.StatusRemoteInvalid}, 0, false)
	return false
}

// answer executes the atomic that the peer asks for and sends the result.
func (m *mailbox) answer(x *letter) {
	e := m.e
	a := letter{kind: letterAnswer, key: uint32(fabric.StatusOK)}
	if v, ok := e.l.execute(x); ok {
		a.addr = v
	} else {
		a.key = uint32(fabric.StatusRemoteAccess)
	}
	starts(e)
	list := [1]verbs.SendWR{m.enclose(a, slot{flags: slotAnswer})}
	if n, err := pass(e, list[:]); n != 1 || err != nil {
		e.down(fabric.Completion{Op: fabric.OpDown, Status: fabric.StatusUnknown}, 0, false)
	}
}

// settle reports atomics that the peer has answered, in order, and each only when what was
// posted before it is complete at this side.
func (m *mailbox) settle() {
	if m == nil {
		return
	}
	e := m.e
	for len(m.asks) > 0 {
		a := m.asks[0]
		if !a.done || int32(e.head-a.seq) <= 0 {
			return
		}
		cell := e.l.cellOf(a.local)
		if a.status == fabric.StatusOK && cell == nil {
			a.status = fabric.StatusLocalProtection
		}
		if a.status != fabric.StatusOK {
			m.refuse(fabric.Completion{Status: a.status})
			return
		}
		binary.NativeEndian.PutUint64(cell, a.value)
		m.pop()
		if a.flags&fabric.FlagSignaled != 0 {
			e.l.push(fabric.Completion{ID: a.id, EP: e.id, Op: a.op})
		}
	}
}

func (m *mailbox) pop() { m.asks = append(m.asks[:0], m.asks[1:]...) }

// refuse ends the endpoint because its first ask failed.
func (m *mailbox) refuse(c fabric.Completion) {
	e := m.e
	c.ID, c.EP, c.Op = m.asks[0].id, e.id, m.asks[0].op
	m.pop()
	e.setErr(errDown(c))
	e.l.push(c)
	finish(e, c)
}

// flush reports the atomics that were not answered.
func (m *mailbox) flush() {
	if m == nil {
		return
	}
	e := m.e
	for _, a := range m.asks {
		if a.flags&fabric.FlagSignaled != 0 {
			e.l.push(fabric.Completion{ID: a.id, EP: e.id, Op: a.op, Status: fabric.StatusFlushed})
		}
	}
	m.asks = m.asks[:0]
}
