//go:build linux || darwin || freebsd

package tcp

import (
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/softlink"
)

// slot is one work request from Post to its completion.
type slot struct {
	id      uint64
	raddr   uint64
	operand uint64
	compare uint64
	n       uint32 // bytes
	rkey    uint32
	imm     uint32
	sge     uint32 // first piece in the SGE ring
	nsge    uint32
	left    uint32 // reads whose answer comes by the lanes: bytes still to come
	op      fabric.Op
	flags   fabric.Flags
	status  fabric.Status // not OK: refused on this side, fails when its turn comes
	done    bool          // reads and atomics: the reply is here
	laned   bool          // reads: the answer was announced for the lanes
}

// minSGEs is the least size of the SGE ring: a few lists of the usual length
// for each of the default number of requests, in 16 KiB.
const minSGEs = 1024

// maxPieces bounds the pieces of one list; a ring that must grow for a list
// beyond its size does so once and stays.
const maxPieces = 1 << 20

// sendq holds the work requests in the order of Post. Requests before head are
// complete, those before sent have their header in the byte stream, those before
// tail are accepted. The cursors count modulo 2^32 and are the wire's sequence
// numbers.
type sendq struct {
	slots            []slot // length a power of two
	depth            uint32
	head, sent, tail uint32
	acked            uint32 // requests that the peer has executed
	owed             uint32 // completions pushed and not yet delivered

	sges             []fabric.SGE // length a power of two
	sgeHead, sgeTail uint32

	// reads is the sequence numbers of the reads and atomics in flight, oldest
	// first: replies come in this order.
	reads          [maxReads]uint32
	rdHead, rdTail uint32

	inline []byte // maxInline bytes a slot

	sinceAck    uint32 // requests sent since one that asks for an acknowledgement
	sgeSinceAck uint32 // their pieces
	pinged      bool   // an acknowledgement was asked for because the queue was full
	ping        bool   // ask for one
}

func (q *sendq) init(depth int, inline []byte) {
	q.depth = uint32(depth)
	q.slots = make([]slot, pow2(depth))
	q.sges = make([]fabric.SGE, pow2(max(minSGEs, 4*depth)))
	q.inline = inline
}

func pow2(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

func (q *sendq) slot(seq uint32) *slot { return &q.slots[seq&uint32(len(q.slots)-1)] }

func (q *sendq) piece(i uint32) *fabric.SGE { return &q.sges[i&uint32(len(q.sges)-1)] }

func (q *sendq) inlineOf(seq uint32) []byte {
	i := int(seq&uint32(len(q.slots)-1)) * maxInline
	return q.inline[i : i+maxInline]
}

// readsInFlight counts reads and atomics without a reply.
func (q *sendq) readsInFlight() uint32 { return q.rdTail - q.rdHead }

// take accepts one request whose shape is right. It reports false if the queue
// is full. Class: short.
func (e *endpoint) take(w *fabric.WR, n uint32) bool {
	q := &e.sq
	if q.tail-q.head+q.owed >= q.depth {
		return false
	}
	s := q.slot(q.tail)
	*s = slot{
		id: w.ID, raddr: w.RemoteAddr, operand: w.Operand, compare: w.Compare,
		n: n, rkey: w.RKey, imm: w.Imm, sge: q.sgeTail, op: w.Op, flags: w.Flags,
	}
	if w.Flags&fabric.FlagInline != 0 {
		softlink.Gather(q.inlineOf(q.tail), w.Local)
	} else {
		if len(w.Local) > len(q.sges)-int(q.sgeTail-q.sgeHead) && !q.makeRoom(len(w.Local)) {
			return false
		}
		for i := range w.Local {
			if w.Local[i].Len != 0 {
				*q.piece(q.sgeTail + s.nsge) = w.Local[i]
				s.nsge++
			}
		}
		q.sgeTail += s.nsge
		if !e.l.keys.CheckLocal(w) {
			s.status = fabric.StatusLocalProtection
		}
	}
	if w.Flags&fabric.FlagNotify == 0 {
		s.imm = 0
	}
	q.tail++
	return true
}

// makeRoom grows the SGE ring for a list longer than all of it, once it is
// empty. Class: setup; such lists are out of the ordinary.
func (q *sendq) makeRoom(n int) bool {
	if q.sgeHead != q.sgeTail || n <= len(q.sges) {
		return false
	}
	q.sges = make([]fabric.SGE, pow2(n))
	return true
}

// askAck decides whether the request being sent asks for an acknowledgement:
// when its completion is wanted, and now and then for the queue's sake.
func (q *sendq) askAck(s *slot) bool {
	q.sinceAck++
	q.sgeSinceAck += s.nsge
	if s.flags&fabric.FlagSignaled == 0 && q.sinceAck < max(1, q.depth/4) && q.sgeSinceAck < uint32(len(q.sges)/4) {
		return false
	}
	q.sinceAck, q.sgeSinceAck = 0, 0
	return true
}

// retire completes requests at the head of the queue as far as they are done,
// in order. It reports false if the endpoint went down. Class: short.
func (e *endpoint) retire() bool {
	q := &e.sq
	for q.head != q.tail {
		s := q.slot(q.head)
		if q.head == q.sent {
			if s.status == fabric.StatusOK {
				break
			}
			e.fail(s.status, errLocal)
			return false
		}
		if s.op == fabric.OpWrite {
			if int32(q.acked-q.head) <= 0 {
				break
			}
		} else if !s.done {
			break
		}
		q.sgeHead = s.sge + s.nsge
		q.head++
		q.pinged = false
		if s.flags&fabric.FlagSignaled != 0 {
			q.owed++
			e.push(fabric.Completion{ID: s.id, EP: e.id, Op: s.op})
		}
	}
	return true
}

// flush completes everything outstanding: the oldest with status first, the
// rest as flushed.
func (e *endpoint) flush(first fabric.Status) {
	q := &e.sq
	for ; q.head != q.tail; q.head++ {
		s := q.slot(q.head)
		q.owed++
		e.push(fabric.Completion{ID: s.id, EP: e.id, Op: s.op, Status: first})
		first = fabric.StatusFlushed
	}
	q.sgeHead = q.sgeTail
}
