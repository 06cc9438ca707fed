//go:build linux || darwin || freebsd

package tcp

import (
	"encoding/binary"
	"fmt"

	"github.com/seed33544411/rma/fabric"
)

const (
	// stageSize holds headers and copied payloads between encoding and the
	// socket: several dozen small frames, or one send's worth on any path.
	stageSize = 32 << 10

	// copyMax is the largest payload that is copied behind its header instead of
	// being sent in place. Copying 1 KiB takes 30 ns; a piece of its own costs
	// the kernel about as much and uses up a segment. Beyond, the second copy
	// shows in a stream: one of 2 KiB writes loses a third. 1 KiB of an
	// application comes with a few words of the protocols.
	copyMax = 1<<10 + 256

	// copyAlone is the same for a write while none is under way: it is the
	// latency that counts then, the payload is in the first cache, and a send of
	// one piece is 0.15 µs quicker than a gathering one.
	copyAlone = 4<<10 + 256

	// maxSegs is how many pieces of the byte stream are prepared at a time.
	maxSegs = 64

	// maxIov is the most pieces one send gathers or one receive scatters.
	maxIov = maxSegs

	// pumpBudget bounds the sends of one visit, so that one endpoint with an
	// endless backlog does not keep the others waiting.
	pumpBudget = 8
)

// Kinds of segments.
const (
	segStage uint8 = iota // in the staging buffer
	segOwn                // in the memory of a request of ours
	segReply              // in a region, for a read of the peer
)

// seg is a piece of the outgoing byte stream.
type seg struct {
	addr uint64
	n    uint32
	seq  uint32 // segOwn: the request
	rkey uint32 // segReply
	end  uint32 // segStage: staging cursor behind the segment
	kind uint8
}

// tx is the outgoing byte stream: a short queue of segments, encoded ahead of
// the socket. All that waits behind it is descriptors (sendq, replyq).
type tx struct {
	segs       [maxSegs]seg
	head, tail uint32

	stage          []byte
	stHead, stTail uint32 // cursors into stage; equal when it is empty

	// cur is the request whose pieces are being appended.
	curSeq, curSge, curEnd uint32

	turn bool // the last frame was a reply
	dead bool // the socket takes nothing any more
	err  error
}

func (t *tx) idle() bool { return t.head == t.tail && t.curSge == t.curEnd }

func (t *tx) free() uint32 { return maxSegs - (t.tail - t.head) }

func (t *tx) add(s seg) {
	t.segs[t.tail%maxSegs] = s
	t.tail++
}

// room returns n contiguous bytes of the staging buffer as part of the stream,
// nil if there are none now.
func (t *tx) room(n uint32) []byte {
	if t.stHead == t.stTail {
		t.stHead, t.stTail = 0, 0 // the same cache lines again
	}
	off := t.stTail % stageSize
	skip := uint32(0)
	if off+n > stageSize {
		skip, off = stageSize-off, 0
	}
	if t.stTail+skip+n-t.stHead > stageSize {
		return nil
	}
	t.stTail += skip + n
	b := t.stage[off : off+n : off+n]
	if t.head != t.tail && off != 0 {
		if last := &t.segs[(t.tail-1)%maxSegs]; last.kind == segStage && last.end == t.stTail-n {
			last.n += n
			last.end = t.stTail
			return b
		}
	}
	t.add(seg{addr: fabric.Addr(b), n: n, kind: segStage, end: t.stTail})
	return b
}

// txPending reports bytes or descriptors that could go out.
func (e *endpoint) txPending() bool {
	return !e.tx.idle() || e.mayReply() || e.ackNow || e.sq.ping
}

// canSend reports whether a pump may have something to do.
func (e *endpoint) canSend() bool {
	if e.tx.dead {
		return false
	}
	return e.txPending() || !e.refused && e.sq.sent != e.sq.tail && e.mayStart(e.sq.slot(e.sq.sent))
}

// pump encodes what is due and sends as much as the socket takes. Class: short
// (one small request), bulk.
func (e *endpoint) pump() {
	t := &e.tx
	for range pumpBudget {
		e.fill()
		if t.head == t.tail || t.dead {
			return
		}
		if !e.send() {
			return
		}
	}
}

// fill encodes frames until the segments or the staging buffer are used up.
// Replies and requests take turns.
func (e *endpoint) fill() {
	t, q := &e.tx, &e.sq
	for t.free() >= 3 {
		if t.curSge != t.curEnd {
			p := q.piece(t.curSge)
			t.add(seg{addr: p.Addr, n: p.Len, seq: t.curSeq, kind: segOwn})
			t.curSge++
			continue
		}
		own := !e.refused && q.sent != q.tail && e.mayStart(q.slot(q.sent))
		if e.mayReply() && (!own || !t.turn) {
			if !e.putReply() {
				return
			}
			t.turn = true
			continue
		}
		if own {
			if !e.putRequest(q.slot(q.sent)) {
				return
			}
			t.turn = false
			continue
		}
		if e.ackNow || q.ping {
			b := t.room(headerSize)
			if b == nil {
				return
			}
			h := header{op: opAck}
			if q.ping {
				h.flags, q.ping = wireAck, false
			}
			e.putHeader(&h, b)
			continue
		}
		return
	}
}

// putHeader writes h with the current acknowledgement.
func (e *endpoint) putHeader(h *header, b []byte) {
	h.ack = e.exec
	e.ackWant, e.ackNow, e.ackCount, e.ackAge = false, false, 0, 0
	h.put(b)
}

// mayStart reports whether the next request may be sent now.
func (e *endpoint) mayStart(s *slot) bool {
	q := &e.sq
	switch {
	case s.status != fabric.StatusOK:
		return false
	case s.flags&fabric.FlagFence != 0 && q.readsInFlight()+uint32(e.bulk.reads) != 0:
		return false
	case s.op == fabric.OpWrite && e.bulk.full() && e.bulk.takesSlot(s):
		return false
	}
	return s.op == fabric.OpWrite || q.readsInFlight() < maxReads
}

// alone reports that the next request is the only one that the peer has not
// executed.
func (e *endpoint) alone() bool {
	q := &e.sq
	return q.acked == q.sent && q.sent+1 == q.tail
}

// mayReply reports whether there is a reply to be sent now.
func (e *endpoint) mayReply() bool {
	if e.rq.empty() {
		return false
	}
	d := e.rq.front()
	return d.kind != replyRead || !e.bulk.full() || !e.bulk.takes(d.n)
}

// putRequest encodes the next request. It reports false if there is no room.
func (e *endpoint) putRequest(s *slot) bool {
	t, q := &e.tx, &e.sq
	h := header{addr: s.raddr, seq: q.sent, n: s.n, rkey: s.rkey}
	var b []byte
	switch s.op {
	case fabric.OpWrite:
		laned := e.bulk.takesSlot(s)
		size, copied := uint32(headerSize), !laned && (s.n <= copyMax || s.n <= copyAlone && e.alone())
		if copied {
			size += s.n
		}
		if b = t.room(size); b == nil {
			return false
		}
		h.op, h.imm = opWrite, s.imm
		if s.flags&fabric.FlagNotify != 0 {
			h.flags = wireNotify
		}
		if q.askAck(s) {
			h.flags |= wireAck
		}
		switch {
		case laned:
			h.flags |= wireLanes
			e.bulk.add(transfer{n: s.n, seq: q.sent, sge: s.sge})
		case !copied:
			t.curSeq, t.curSge, t.curEnd = q.sent, s.sge, s.sge+s.nsge
		case s.flags&fabric.FlagInline != 0:
			copy(b[headerSize:], q.inlineOf(q.sent)[:s.n])
		default:
			p := b[headerSize:]
			for i := range s.nsge {
				g := q.piece(s.sge + i)
				p = p[copy(p, fabric.BytesAt(g.Addr, int(g.Len))):]
			}
		}
	case fabric.OpRead:
		if b = t.room(headerSize); b == nil {
			return false
		}
		h.op = opRead
	default:
		if b = t.room(headerSize + operandsSize); b == nil {
			return false
		}
		h.op, h.n = opFetchAdd, operandsSize
		if s.op == fabric.OpCompareSwap {
			h.op = opCompareSwap
			binary.LittleEndian.PutUint64(b[headerSize+8:], s.compare)
		} else {
			binary.LittleEndian.PutUint64(b[headerSize+8:], 0)
		}
		binary.LittleEndian.PutUint64(b[headerSize:], s.operand)
	}
	if s.op != fabric.OpWrite {
		q.reads[q.rdTail%maxReads] = q.sent
		q.rdTail++
		q.sinceAck, q.sgeSinceAck = 0, 0 // the reply acknowledges
	}
	e.putHeader(&h, b)
	q.sent++
	return true
}

// putReply encodes the oldest reply due. It reports false if there is no room.
func (e *endpoint) putReply() bool {
	t, g := &e.tx, &e.l.guard
	d := e.rq.front()
	h := header{op: opReadReply, seq: d.seq, n: d.n}
	var b []byte
	switch {
	case d.kind == replyNak:
		if b = t.room(headerSize); b == nil {
			return false
		}
		h.op, h.status, h.n = opNak, d.status, 0
	case d.kind == replyAtomic:
		if b = t.room(headerSize + resultSize); b == nil {
			return false
		}
		h.op = opAtomicReply
		binary.LittleEndian.PutUint64(b[headerSize:], d.val)
	default:
		size := uint32(headerSize)
		laned := e.bulk.takes(d.n)
		if d.n <= copyMax && !laned {
			size += d.n
		}
		if b = t.room(size); b == nil {
			return false
		}
		g.enter()
		ok := d.n == 0 || e.l.keys.Allows(d.rkey, d.val, uint64(d.n), fabric.AccessRemoteRead)
		if ok && d.n <= copyMax && !laned {
			copy(b[headerSize:], fabric.BytesAt(d.val, int(d.n)))
		}
		g.exit()
		if !ok {
			// The region was closed after the request was accepted. What the
			// staging buffer has room for beyond the header stays unused.
			e.unroom(size - headerSize)
			e.refuseInstead(d)
			h.op, h.status, h.n = opNak, fabric.StatusRemoteAccess, 0
		} else if laned {
			h.flags = wireLanes
			e.bulk.add(transfer{n: d.n, seq: d.seq, addr: d.val, rkey: d.rkey, reply: true})
		} else if d.n > copyMax {
			t.add(seg{addr: d.val, n: d.n, rkey: d.rkey, kind: segReply})
		}
	}
	e.putHeader(&h, b)
	e.rq.pop()
	return true
}

// unroom gives back the last n bytes that room returned.
func (e *endpoint) unroom(n uint32) {
	t := &e.tx
	last := &t.segs[(t.tail-1)%maxSegs]
	last.n -= n
	last.end -= n
	t.stTail -= n
}

// send hands the front of the stream to the socket. It reports whether all of
// it was taken. Class: short, bulk.
func (e *endpoint) send() bool {
	t, l := &e.tx, e.l
	k, total, guarded := 0, 0, false
	for i := t.head; i != t.tail && total < e.chunk; i++ {
		s := &t.segs[i%maxSegs]
		n := int(min(s.n, uint32(e.chunk-total)))
		l.io.iov[k] = iovec{base: uintptr(s.addr), len: uintptr(n)}
		total += n
		k++
		guarded = guarded || s.kind == segReply
	}
	var n int
	var err error
	if guarded {
		l.guard.enter()
		if !e.repliesAllowed() {
			l.guard.exit()
			// The header of the reply is out already: the stream cannot go on.
			t.dead, t.err = true, errRegionClosed
			return false
		}
		n, err = e.sock.send(l.io.iov[:k], total)
		l.guard.exit()
	} else {
		n, err = e.sock.send(l.io.iov[:k], total)
	}
	if err != nil {
		t.dead, t.err = true, fmt.Errorf("tcp: send: %w: %w", fabric.ErrPeerGone, err)
		return false
	}
	t.advance(n)
	return !e.sock.blocked
}

// repliesAllowed reports whether the regions of all queued replies still are.
func (e *endpoint) repliesAllowed() bool {
	t := &e.tx
	for i := t.head; i != t.tail; i++ {
		s := &t.segs[i%maxSegs]
		if s.kind == segReply && !e.l.keys.Allows(s.rkey, s.addr, uint64(s.n), fabric.AccessRemoteRead) {
			return false
		}
	}
	return true
}

// advance drops n sent bytes.
func (t *tx) advance(n int) {
	for n > 0 {
		s := &t.segs[t.head%maxSegs]
		if uint32(n) < s.n {
			s.addr += uint64(n)
			s.n -= uint32(n)
			return
		}
		n -= int(s.n)
		if s.kind == segStage {
			t.stHead = s.end
		}
		t.head++
	}
}

// ackable reports whether the peer can have executed all requests before seq:
// not while payload of one of them waits here.
//
// The lanes know about theirs: see bulk.ackable.
func (t *tx) ackable(seq uint32) bool {
	if t.curSge != t.curEnd && int32(seq-t.curSeq) > 0 {
		return false
	}
	for i := t.head; i != t.tail; i++ {
		if s := &t.segs[i%maxSegs]; s.kind == segOwn {
			return int32(seq-s.seq) <= 0
		}
	}
	return true
}
