//go:build linux || darwin || freebsd

package tcp

import (
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/softlink"
)

// Limits of the link, as Caps reports them.
const (
	// maxSGE is nominal: lists of any length are sent as one frame.
	maxSGE = 32

	// maxInline is small enough that the memory for it, once per work request, is cheap,
	// and large enough for every control message of the protocols.
	maxInline = 256

	// maxReads is enough for a 10 Gbit/s × 1 ms path with 10 KiB reads, and costs the
	// target 24 bytes per read.
	maxReads = 128
)

// maxDepth bounds EndpointOptions.Depth.
const maxDepth = 1 << 16

var errLocal = fmt.Errorf("tcp: post: %w", fabric.ErrLocalProtection)

// slot is one work request from Post to its completion.
type slot struct {
	id      uint64
	raddr   uint64
	operand uint64
	compare uint64
	n       uint32 // bytes
	rkey    uint32
	imm     uint32
	piece   uint32 // its first piece
	pieces  uint32
	left    uint32 // reads whose answer uses the lanes: missing bytes
	op      fabric.Op
	flags   fabric.Flags
	status  fabric.Status // not OK: refused on this side; the request fails in its turn
	done    bool          // reads and atomics: the reply has arrived
	laned   bool          // reads: the answer was announced for the lanes
	again   bool          // reads: requested once more after the loss of a connection
}

// requester holds the requests of this side, in the order of Post. Those before head are
// complete, those before sent have their header in the byte stream, those before tail are
// accepted. The cursors count modulo 2^32 and are the sequence numbers of the wire
// protocol.
type requester struct {
	mem   *memory
	in    *incoming
	out   *outgoing
	lanes *lanes
	comps *completions

	slots            []slot // length a power of two
	depth            uint32
	head, sent, tail uint32
	acked            uint32 // requests that the peer has executed
	reached          uint32 // requests sent on connections that were lost
	nak              header // a refusal that waits for payload on the lanes; op 0: none
	pieces           pieces
	inline           []byte // maxInline bytes per slot

	// reads holds the sequence numbers of the reads and atomics in flight, oldest first:
	// replies are sent in this order. Reads whose answer uses the lanes are removed and
	// only counted.
	reads          [maxReads]uint32
	rdHead, rdTail uint32
	laned          uint32
	again          []uint32 // reads that must be requested once more, before anything else

	// Of the current reply: the place of the next byte.
	piece, off uint32

	sinceAck       uint32 // requests sent since one that asks for an acknowledgement
	piecesSinceAck uint32
	pinged         bool // an acknowledgement was requested because the queue was full
	ping           bool // request one
}

func (q *requester) init(depth int, inline []byte) {
	q.depth = uint32(depth)
	q.slots = make([]slot, pow2(depth))
	q.pieces.init(depth)
	q.inline = inline
}

func (q *requester) slot(seq uint32) *slot { return &q.slots[seq&uint32(len(q.slots)-1)] }

func (q *requester) inlineOf(seq uint32) []byte {
	i := int(seq&uint32(len(q.slots)-1)) * maxInline
	return q.inline[i : i+maxInline]
}

// readsInFlight returns the number of reads and atomics whose reply has not begun.
func (q *requester) readsInFlight() uint32 { return q.rdTail - q.rdHead }

// take accepts one well-formed request. It returns its slot, or nil if the queue is full:
// then it requests an acknowledgement from the peer.
// Hot path.
func (q *requester) take(w *fabric.WR) *slot {
	inline := w.Flags&fabric.FlagInline != 0
	if q.tail-q.head+q.comps.owed >= q.depth || !inline && !q.pieces.room(len(w.Local)) {
		if !q.pinged {
			q.pinged, q.ping = true, true
		}
		return nil
	}
	s := q.slot(q.tail)
	*s = slot{
		id: w.ID, raddr: w.RemoteAddr, operand: w.Operand, compare: w.Compare,
		n: uint32(w.Len()), rkey: w.RKey, imm: w.Imm, piece: q.pieces.tail, op: w.Op, flags: w.Flags,
	}
	if inline {
		softlink.Gather(q.inlineOf(q.tail), w.Local)
	} else {
		s.pieces = q.pieces.add(w.Local)
		if !q.mem.keys.CheckLocal(w) {
			s.status = fabric.StatusLocalProtection
		}
	}
	if w.Flags&fabric.FlagNotify == 0 {
		s.imm = 0
	}
	q.tail++
	return s
}

// retire completes requests at the head of the queue that are done, in order.
// Hot path.
func (q *requester) retire() *failure {
	for q.head != q.tail {
		s := q.slot(q.head)
		if q.head == q.sent {
			if s.status == fabric.StatusOK {
				break
			}
			return &failure{status: s.status, cause: errLocal}
		}
		if s.op == fabric.OpWrite {
			if int32(q.acked-q.head) <= 0 {
				break
			}
		} else if !s.done {
			break
		}
		q.pieces.head = s.piece + s.pieces
		q.head++
		q.pinged = false
		if s.flags&fabric.FlagSignaled != 0 {
			q.comps.request(s.id, s.op, fabric.StatusOK)
		}
	}
	return nil
}

// flush completes everything outstanding: the oldest with status first, the rest as
// flushed.
func (q *requester) flush(first fabric.Status) {
	for ; q.head != q.tail; q.head++ {
		s := q.slot(q.head)
		q.comps.request(s.id, s.op, first)
		first = fabric.StatusFlushed
	}
	q.pieces.head = q.pieces.tail
}
