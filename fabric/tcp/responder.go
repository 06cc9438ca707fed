//go:build linux || darwin || freebsd

package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/seed33544411/rma/fabric"
)

var (
	errBadSeq       = errors.New("request out of sequence")
	errTooManyReads = errors.New("more reads and atomics outstanding than announced")
	errRegionClosed = fmt.Errorf("tcp: connection given up (%w): region closed while a peer's read of it was being answered", fabric.ErrPeerGone)
)

// Kinds of replies.
const (
	replyRead uint8 = iota
	replyAtomic
	replyNak
)

// reply is something this side owes the peer.
type reply struct {
	val    uint64 // replyRead: address; replyAtomic: the old value
	seq    uint32
	rkey   uint32
	n      uint32 // bytes
	kind   uint8
	status fabric.Status
}

// replyq is the replies due, oldest first. Its size is what the peer announced
// plus one place for a refusal.
type replyq struct {
	buf        []reply // length a power of two
	limit      uint32
	head, tail uint32
	status     fabric.Status // of the refusal, if there was one
}

func (q *replyq) init(limit uint32) {
	q.limit = limit
	q.buf = make([]reply, pow2(int(limit)+1))
}

func (q *replyq) empty() bool   { return q.head == q.tail }
func (q *replyq) full() bool    { return q.tail-q.head >= q.limit }
func (q *replyq) front() *reply { return &q.buf[q.head&uint32(len(q.buf)-1)] }
func (q *replyq) pop()          { q.head++ }

func (q *replyq) push(r reply) {
	q.buf[q.tail&uint32(len(q.buf)-1)] = r
	q.tail++
}

// refuse answers the request at hand with a refusal and executes no further one.
func (e *endpoint) refuse(seq uint32, st fabric.Status) {
	e.refused = true
	e.rq.status = st
	e.rq.push(reply{kind: replyNak, seq: seq, status: st})
}

// refuseInstead drops the replies behind d, which is itself being turned into a
// refusal.
func (e *endpoint) refuseInstead(d *reply) {
	e.refused = true
	e.rq.status = fabric.StatusRemoteAccess
	e.rq.tail = e.rq.head + 1
}

// request begins a request of the peer whose header has just been read. It
// reports false if the endpoint went down. Class: short.
func (e *endpoint) request(h *header) bool {
	x, l := &e.rx, e.l
	if e.refused {
		x.skip(h.size() - headerSize)
		return true
	}
	if h.seq != e.exec {
		return e.malformed(errBadSeq)
	}
	switch h.op {
	case opWrite:
		if h.flags&wireLanes != 0 {
			return e.expectWrite(h)
		}
		n := int64(h.n)
		if n == 0 {
			e.wrote(h)
			return true
		}
		l.guard.enter()
		ok := l.keys.Allows(h.rkey, h.addr, uint64(n), fabric.AccessRemoteWrite)
		whole := int64(x.w-x.r) >= n
		if ok && whole {
			place(h.addr, x.buf[x.r:x.r+int(n)])
		}
		l.guard.exit()
		switch {
		case !ok:
			e.refuse(h.seq, fabric.StatusRemoteAccess)
			x.skip(uint64(n))
		case whole:
			x.r += int(n)
			e.wrote(h)
		default:
			x.st, x.addr, x.left, x.last = rxWrite, h.addr, n, 0
			if (h.addr+uint64(n))&7 == 0 && n >= 8 {
				x.last = 8
			}
		}
	case opRead:
		if e.rq.full() {
			return e.malformed(errTooManyReads)
		}
		if h.n != 0 && !l.keys.Allows(h.rkey, h.addr, uint64(h.n), fabric.AccessRemoteRead) {
			e.refuse(h.seq, fabric.StatusRemoteAccess)
			return true
		}
		e.rq.push(reply{kind: replyRead, seq: h.seq, rkey: h.rkey, n: h.n, val: h.addr})
		e.exec++
	default:
		if e.rq.full() {
			return e.malformed(errTooManyReads)
		}
		x.st = rxOperands
	}
	return true
}

// wrote ends a write of the peer.
func (e *endpoint) wrote(h *header) {
	e.exec++
	if h.flags == 0 {
		return
	}
	if h.flags&wireAck != 0 {
		e.ackWant = true
		e.ackCount++
		if h.n >= longCall {
			e.ackNow = true // nobody holds a bulk transfer up for a ride
		}
	}
	if h.flags&wireNotify != 0 {
		e.notes++
		e.push(fabric.Completion{EP: e.id, Op: fabric.OpNotify, Imm: h.imm, Bytes: h.n})
	}
}

// atomic executes an atomic of the peer; b is its operands.
func (e *endpoint) atomic(b []byte) {
	h, l := &e.rx.h, e.l
	if h.addr&7 != 0 {
		e.refuse(h.seq, fabric.StatusRemoteInvalid)
		return
	}
	operand, compare := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	l.guard.enter()
	ok := l.keys.Allows(h.rkey, h.addr, 8, fabric.AccessRemoteAtomic)
	var old uint64
	switch {
	case !ok:
	case h.op == opFetchAdd:
		old = fetchAdd(h.addr, operand)
	default:
		old = compareSwap(h.addr, compare, operand)
	}
	l.guard.exit()
	if !ok {
		e.refuse(h.seq, fabric.StatusRemoteAccess)
		return
	}
	e.rq.push(reply{kind: replyAtomic, seq: h.seq, n: resultSize, val: old})
	e.exec++
}
