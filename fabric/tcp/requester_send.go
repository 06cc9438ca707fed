//go:build linux || darwin || freebsd

package tcp

import (
	"encoding/binary"

	"github.com/seed33544411/rma/fabric"
)

// ready reports whether there is a request that may be sent now.
func (q *requester) ready() bool {
	if len(q.again) > 0 {
		return q.readsInFlight() < maxReads
	}
	if q.sent == q.tail {
		return false
	}
	s := q.slot(q.sent)
	switch {
	case s.status != fabric.StatusOK:
		return false
	case s.flags&fabric.FlagFence != 0 && q.readsInFlight()+q.laned != 0:
		return false
	case s.op == fabric.OpWrite:
		return !q.byLane(s) || !q.lanes.full()
	}
	return q.readsInFlight() < maxReads
}

// byLane reports whether the payload of a write uses a lane. Inline payload is not in
// pieces, and small.
func (q *requester) byLane(s *slot) bool {
	return q.lanes.takes(s.n) && s.flags&fabric.FlagInline == 0
}

// put encodes the next request. It reports false if there is no room.
// Hot path.
func (q *requester) put() bool {
	if len(q.again) > 0 {
		return q.putAgain()
	}
	s := q.slot(q.sent)
	h := header{addr: s.raddr, seq: q.sent, n: s.n, rkey: s.rkey}
	var b []byte
	switch s.op {
	case fabric.OpWrite:
		b = q.putWrite(s, &h)
	case fabric.OpRead:
		h.op = opRead
		b = q.out.room(headerSize)
	default:
		b = q.putAtomic(s, &h)
	}
	if b == nil {
		return false
	}
	if s.op != fabric.OpWrite {
		q.reads[q.rdTail%maxReads] = q.sent
		q.rdTail++
		q.sinceAck, q.piecesSinceAck = 0, 0 // the reply acknowledges
	}
	q.out.header(&h, b)
	q.sent++
	return true
}

// putAgain encodes the next read that must be requested once more. It reports false if there is no
// room.
func (q *requester) putAgain() bool {
	b := q.out.room(headerSize)
	if b == nil {
		return false
	}
	seq := q.again[0]
	s := q.slot(seq)
	h := header{op: opRead, flags: wireAgain, addr: s.raddr, seq: seq, n: s.n, rkey: s.rkey}
	q.again = q.again[1:]
	s.again = true
	q.reads[q.rdTail%maxReads] = seq
	q.rdTail++
	q.out.header(&h, b)
	return true
}

// putWrite encodes a write without its header, for which it returns the place. It returns
// nil if there is no room.
func (q *requester) putWrite(s *slot, h *header) []byte {
	laned := q.byLane(s)
	size, copied := uint32(headerSize), !laned && (s.n <= copyMax || s.n <= copyAlone && q.alone())
	if copied {
		size += s.n
	}
	b := q.out.room(size)
	if b == nil {
		return nil
	}
	h.op, h.imm = opWrite, s.imm
	if s.flags&fabric.FlagNotify != 0 {
		h.flags = wireNotify
	}
	if q.wantsAck(s) {
		h.flags |= wireAck
	}
	switch {
	case laned:
		h.flags |= wireLanes
		q.lanes.add(transfer{n: s.n, seq: q.sent, piece: s.piece})
	case !copied:
		q.out.follow(q.sent, s.piece, s.pieces)
	case s.flags&fabric.FlagInline != 0:
		copy(b[headerSize:], q.inlineOf(q.sent)[:s.n])
	default:
		p := b[headerSize:]
		for i := range s.pieces {
			g := q.pieces.at(s.piece + i)
			p = p[copy(p, fabric.BytesAt(g.Addr, int(g.Len))):]
		}
	}
	return b
}

// largeBefore reports whether a write before seq that uses the lanes is in flight.
func (q *requester) largeBefore(seq uint32) bool {
	for i := q.acked; i != seq; i++ {
		if s := q.slot(i); s.op == fabric.OpWrite && q.byLane(s) {
			return true
		}
	}
	return false
}

// putAtomic is putWrite for an atomic.
func (q *requester) putAtomic(s *slot, h *header) []byte {
	b := q.out.room(headerSize + operandsSize)
	if b == nil {
		return nil
	}
	h.op, h.n = opFetchAdd, operandsSize
	compare := uint64(0)
	if s.op == fabric.OpCompareSwap {
		h.op, compare = opCompareSwap, s.compare
	}
	binary.LittleEndian.PutUint64(b[headerSize:], s.operand)
	binary.LittleEndian.PutUint64(b[headerSize+8:], compare)
	return b
}

// alone reports whether the next request is the only one that the peer has not executed.
func (q *requester) alone() bool { return q.acked == q.sent && q.sent+1 == q.tail }

// wantsAck decides whether the request being sent requests an acknowledgement: if its
// completion is signalled, and at intervals to free the queue.
func (q *requester) wantsAck(s *slot) bool {
	q.sinceAck++
	q.piecesSinceAck += s.pieces
	if s.flags&fabric.FlagSignaled == 0 && q.sinceAck < max(1, q.depth/4) && q.piecesSinceAck < uint32(len(q.pieces.ring)/4) {
		return false
	}
	q.sinceAck, q.piecesSinceAck = 0, 0
	return true
}
