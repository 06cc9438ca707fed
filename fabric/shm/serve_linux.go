package shm

import (
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/softlink"
)

// serveBudget bounds what one endpoint gets in one Poll, so that the others
// have their turn: a few bounce buffers' worth of copying.
const serveBudget = 64

// frameReady reports whether the slot that the peer fills next has changed
// since it was last consumed.
func (ep *endpoint) frameReady() bool {
	n := uint64(len(ep.in))
	return ep.in[ep.inHead&(n-1)].seq.Load() != ep.inHead+1-n
}

// serve takes frames from the ring: notifications go to cs, requests are
// executed. May take the endpoint down.
// Hot path.
func (ep *endpoint) serve(cs []fabric.Completion) int {
	n := 0
	size := uint64(len(ep.in))
	answered := false
	for range serveBudget {
		f := &ep.in[ep.inHead&(size-1)]
		seq := f.seq.Load()
		if seq == ep.inHead+1-size {
			break
		}
		if seq != ep.inHead+1 {
			ep.corrupt(fmt.Errorf("%w: frame %d says it is %d", ErrCorrupt, ep.inHead, seq-1))
			return n
		}
		w := f.w // once: the peer may change it under us
		m, err := parseFrame(&w)
		if err != nil {
			ep.corrupt(err)
			return n
		}
		if m.kind == frameNotify && n == len(cs) {
			break
		}
		switch m.kind {
		case frameNotify:
			cs[n] = fabric.Completion{EP: ep.id, Op: fabric.OpNotify, Imm: m.imm, Bytes: m.bytes}
			n++
		case frameBye:
			ep.hup = true
		default:
			ep.answer(&m)
			answered = true
		}
		ep.inHead++
	}
	// The head is published once a quarter of the ring: the peer still sees
	// three quarters free, and its line of the head is left alone.
	wake := answered
	if ep.inHead-ep.inPub >= size/4 {
		ep.inPub = ep.inHead
		ep.ownHdr.head.Store(ep.inHead)
		wake = wake || ep.ownHdr.starved.Load() != 0
	}
	if wake {
		ep.wakePeer()
	}
	return n
}

// answer executes a request of the peer and replies. Eager path.
func (ep *endpoint) answer(m *message) {
	l := ep.link
	st, value := fabric.StatusRemoteAccess, uint64(0)
	n := int(m.bytes)
	l.serving.Store(m.key) // before the look-up; see link.inUse
	switch m.kind {
	case frameWrite:
		if l.keys.Allows(m.key, m.addr, uint64(n), fabric.AccessRemoteWrite) {
			sgl := [1]fabric.SGE{fabric.NewSGE(bounce(ep.peerBnc, int(m.slot), n), 0)}
			put(m.addr, sgl[:], uint64(n))
			st = fabric.StatusOK
		}
	case frameRead:
		if l.keys.Allows(m.key, m.addr, uint64(n), fabric.AccessRemoteRead) {
			copy(bounce(ep.peerBnc, int(m.slot), n), fabric.BytesAt(m.addr, n))
			st = fabric.StatusOK
		}
	default:
		op := fabric.OpFetchAdd
		if m.kind == frameCompareSwap {
			op = fabric.OpCompareSwap
		}
		if l.keys.Allows(m.key, m.addr, 8, softlink.RemoteNeed(op)) {
			value = atomic8(op, m.addr, m.compare, m.operand)
			st = fabric.StatusOK
		}
	}
	l.serving.Store(0)
	rp := &ep.peerReply[m.slot]
	rp.status.Store(uint64(st))
	rp.value.Store(value)
	rp.seq.Store(m.req + 1)
}
