//go:build linux || darwin || freebsd

package tcp

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/seed33544411/rma/fabric"
)

// onAck handles a cumulative acknowledgement.
// Hot path.
func (q *requester) onAck(ack uint32) *failure {
	if ack-q.acked > q.sent-q.acked || !q.out.ackable(ack) || !q.lanes.ackable(ack) {
		return malformed(errBadAck)
	}
	q.acked = ack
	return q.retire()
}

// onReply begins a reply.
// Hot path.
func (q *requester) onReply(h *header) *failure {
	if q.readsInFlight() == 0 || q.reads[q.rdHead%maxReads] != h.seq || int32(q.acked-h.seq) <= 0 {
		return malformed(errBadReply)
	}
	s := q.slot(h.seq)
	if (s.op == fabric.OpRead) != (h.op == opReadReply) || s.n != h.n {
		return malformed(errBadReply)
	}
	x := q.in
	switch {
	case h.flags&wireLanes != 0:
		return q.expect(s)
	case h.op == opAtomicReply:
		x.st = rxResult
	default:
		x.st, x.left = rxReply, int64(s.n)
		q.piece, q.off = s.piece, 0
	}
	return nil
}

// onNak handles a refusal: requests before it are complete, but for reads whose payload is on the
// lanes, and it fails.
func (q *requester) onNak(h *header) *failure {
	sent := q.sent
	if int32(q.reached-sent) > 0 {
		sent = q.reached // the refusal of one that was sent before a connection was lost
	}
	if q.nak.op != 0 || h.seq-q.head >= sent-q.head {
		return malformed(errBadNak)
	}
	for seq := q.head; seq != h.seq; seq++ {
		switch s := q.slot(seq); {
		case s.done || s.laned || s.op == fabric.OpWrite && int32(q.acked-seq) > 0:
		case s.again || slices.Contains(q.again, seq):
			return &failure{status: fabric.StatusPeerGone, cause: errAnswerLost}
		default:
			return malformed(errBadNak)
		}
	}
	q.nak = *h
	return q.refusal()
}

// refusal returns the failure of the refused request, if those before it are complete.
func (q *requester) refusal() *failure {
	if q.nak.op == 0 || q.head != q.nak.seq {
		return nil
	}
	return &failure{status: q.nak.status, cause: fmt.Errorf("tcp: %w", q.nak.status.Err())}
}

// receive receives payload of the current reply into place.
func (q *requester) receive() (n, want int, err error) {
	x := q.in
	k, total := q.pieces.vec(x.sock.sys.iov[:maxIov-1], q.piece, q.off, int(min(x.left, maxScatter)))
	n, want, err = x.direct(k, total, int64(total) == x.left)
	q.piece, q.off = q.pieces.forward(q.piece, q.off, uint32(min(n, total)))
	return n, want, err
}

// place copies the received part of the reply's payload into place. It reports whether that
// completes the payload.
func (q *requester) place() (all bool) {
	x := q.in
	for x.r < x.w && x.left > 0 {
		p := q.pieces.at(q.piece)
		n := copy(fabric.BytesAt(p.Addr+uint64(q.off), int(min(int64(p.Len-q.off), x.left))), x.have())
		q.piece, q.off = q.pieces.forward(q.piece, q.off, uint32(n))
		x.r += n
		x.left -= int64(n)
		x.copied += uint64(n)
	}
	return x.left == 0
}

// result stores the result of an atomic, which is at the front of the buffer.
func (q *requester) result() {
	x := q.in
	putWord(fabric.BytesAt(q.pieces.at(q.slot(x.h.seq).piece).Addr, 8), binary.LittleEndian.Uint64(x.have()))
	x.r += resultSize
}

// putWord stores the result of an atomic at the start of mem, which need not be aligned.
func putWord(mem []byte, v uint64) {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], v)
	copy(mem, b[:])
}

// replied ends the current reply.
// Hot path.
func (q *requester) replied() *failure {
	q.in.st = rxHeader
	q.rdHead++
	q.slot(q.in.h.seq).done = true
	return q.retire()
}

// expect begins an answer whose payload uses the lanes.
func (q *requester) expect(s *slot) *failure {
	if q.lanes.none() {
		return malformed(errNoLanes)
	}
	s.laned, s.left = true, s.n
	q.lanes.announced()
	q.laned++
	q.rdHead++
	return nil
}

// laneFrame checks that a lane may carry payload of answer seq. It returns the answer's
// size and the number of missing bytes; wait: the answer has not been announced.
func (q *requester) laneFrame(seq uint32) (size, left uint32, wait bool, f *failure) {
	s := q.slot(seq)
	if seq-q.head >= q.sent-q.head || s.op != fabric.OpRead || s.done {
		return 0, 0, false, malformed(errBadBulk)
	}
	return s.n, s.left, !s.laned, nil
}

// laneVec fills v with the destination of n bytes of answer seq, from its byte at on.
func (q *requester) laneVec(v []iovec, seq, at, n uint32) (k, total int) {
	piece, off := q.pieces.forward(q.slot(seq).piece, 0, at)
	return q.pieces.vec(v, piece, off, int(n))
}

// laneGot records that a lane received n bytes of answer seq.
func (q *requester) laneGot(seq, n uint32) *failure {
	s := q.slot(seq)
	if s.left -= n; s.left > 0 {
		return nil
	}
	s.laned, s.done = false, true
	q.laned--
	q.lanes.arrived()
	if f := q.retire(); f != nil {
		return f
	}
	return q.refusal()
}
