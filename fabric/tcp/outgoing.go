//go:build linux || darwin || freebsd

package tcp

import (
	"errors"
	"fmt"

	"github.com/seed33544411/rma/fabric"
)

const (
	// stageSize is the size of the buffer for headers and copied payloads between encoding
	// and the socket: several dozen small frames, or one send on any path.
	stageSize = 32 << 10

	// copyMax is the largest payload that is copied behind its header instead of being sent
	// in place. Copying 1 KiB takes 30 ns; a separate piece costs the kernel about as much
	// and uses up a segment. Above it the second copy slows down streams: one of 2 KiB
	// writes loses a third. 1 KiB of an application is sent with a few words of the
	// protocols.
	copyMax = 1<<10 + 256

	// copyAlone is the same for a write while no other is in flight: then latency matters,
	// the payload is in the first-level cache, and a send of one piece is 0.15 µs faster
	// than a gathering one.
	copyAlone = 4<<10 + 256

	// maxSegs is the number of pieces of the byte stream that are prepared at a time. A
	// send takes all of them.
	maxSegs = maxIov
)

var errRegionClosed = fmt.Errorf("tcp: connection given up (%w): region closed while a peer's read of it was being answered", fabric.ErrPeerGone)

// acks holds the acknowledgements that this side owes the peer. They are cumulative and are
// sent with every frame.
type acks struct {
	executed uint32 // requests of the peer executed
	count    uint32 // those since the last acknowledgement that request one
	age      uint8  // visits since the first of these
	want     bool
	now      bool
}

const (
	// ackVisits is the number of visits for which an acknowledgement is delayed: one, in
	// which the application sees the data and may answer.
	ackVisits = 1

	// ackBatch is the number of such requests after which an acknowledgement is sent at the
	// latest: a small part of the usual depth, so that the sender's queue keeps moving.
	ackBatch = 32
)

// visit ends a visit of the endpoint. Most acknowledgements are sent with the application's
// answer; one that has waited for a visit gets a frame of its own.
func (a *acks) visit() {
	if !a.want {
		return
	}
	if a.age++; a.age > ackVisits || a.count >= ackBatch {
		a.now = true
	}
}

// demand makes an acknowledgement be sent now.
func (a *acks) demand() { a.want, a.now = true, true }

// Kinds of segments.
const (
	segStage uint8 = iota // in the staging buffer
	segOwn                // in the memory of a request of this side
	segReply              // in a region, for a read of the peer
)

// seg is a piece of the outgoing byte stream.
type seg struct {
	addr uint64
	n    uint32
	seq  uint32 // segOwn: the request
	rkey uint32 // segReply
	end  uint32 // segStage: staging cursor after the segment
	kind uint8
}

// outgoing is the outgoing byte stream of the first connection: a short queue of segments,
// encoded before the socket takes them. Everything that waits behind it is kept as
// descriptors in the requester and the responder.
type outgoing struct {
	sock  *socket
	mem   *memory
	own   *pieces // of this side's requests
	acks  acks
	chunk int // the largest size of a send

	segs       [maxSegs]seg
	head, tail uint32

	stage          []byte
	stHead, stTail uint32 // cursors into stage; equal when it is empty

	// The request whose pieces are being appended.
	curSeq, curPiece, curEnd uint32

	err error // the stream has failed
}

func (o *outgoing) idle() bool { return o.empty() && o.curPiece == o.curEnd }

// empty reports that nothing is encoded.
func (o *outgoing) empty() bool { return o.head == o.tail }

// roomy reports whether a frame may be encoded: it takes two segments, and the pieces of a
// list are appended one at a time.
func (o *outgoing) roomy() bool { return maxSegs-(o.tail-o.head) >= 3 }

func (o *outgoing) add(s seg) {
	o.segs[o.tail%maxSegs] = s
	o.tail++
}

// follow makes n pieces from piece i on follow the frame of request seq.
func (o *outgoing) follow(seq, i, n uint32) { o.curSeq, o.curPiece, o.curEnd = seq, i, i+n }

// piece appends the next piece of the current request, if there is one.
func (o *outgoing) piece() bool {
	if o.curPiece == o.curEnd {
		return false
	}
	p := o.own.at(o.curPiece)
	o.add(seg{addr: p.Addr, n: p.Len, seq: o.curSeq, kind: segOwn})
	o.curPiece++
	return true
}

// room returns n contiguous bytes of the staging buffer as part of the stream, or nil if
// there are none now.
func (o *outgoing) room(n uint32) []byte {
	if o.stHead == o.stTail {
		o.stHead, o.stTail = 0, 0 // reuse the same cache lines
	}
	off := o.stTail % stageSize
	skip := uint32(0)
	if off+n > stageSize {
		skip, off = stageSize-off, 0
	}
	if o.stTail+skip+n-o.stHead > stageSize {
		return nil
	}
	o.stTail += skip + n
	b := o.stage[off : off+n : off+n]
	if o.head != o.tail && off != 0 {
		if last := &o.segs[(o.tail-1)%maxSegs]; last.kind == segStage && last.end == o.stTail-n {
			last.n += n
			last.end = o.stTail
			return b
		}
	}
	o.add(seg{addr: fabric.Addr(b), n: n, kind: segStage, end: o.stTail})
	return b
}

// unroom returns the last n bytes of room.
func (o *outgoing) unroom(n uint32) {
	last := &o.segs[(o.tail-1)%maxSegs]
	last.n -= n
	last.end -= n
	o.stTail -= n
}

// header writes h to b with the acknowledgement that is due.
func (o *outgoing) header(h *header, b []byte) {
	h.ack = o.acks.executed
	o.acks = acks{executed: h.ack}
	h.put(b)
}

// ack encodes a frame that only acknowledges; with ask it requests an acknowledgement from
// the peer. It returns false if there is no room.
func (o *outgoing) ack(ask bool) bool {
	b := o.room(headerSize)
	if b == nil {
		return false
	}
	h := header{op: opAck}
	if ask {
		h.flags = wireAck
	}
	o.header(&h, b)
	return true
}

// end sends the frame that says that this side closes its endpoint, if the socket takes it at once.
func (o *outgoing) end() {
	if o.err != nil || !o.idle() {
		return
	}
	if b := o.room(headerSize); b != nil {
		o.header(&header{op: opAck, flags: wireEnd}, b)
		o.send()
	}
}

// restart drops what was encoded: the stream continues on another connection, or not at all.
func (o *outgoing) restart() {
	*o = outgoing{sock: o.sock, mem: o.mem, own: o.own, chunk: o.chunk, stage: o.stage, acks: acks{executed: o.acks.executed}}
}

// send sends the front of the stream to the socket. It reports whether all of it was taken.
// Hot path.
func (o *outgoing) send() bool {
	v := &o.sock.sys.iov
	k, total, guarded := 0, 0, false
	for i := o.head; i != o.tail && total < o.chunk; i++ {
		s := &o.segs[i%maxSegs]
		n := int(min(s.n, uint32(o.chunk-total)))
		v[k] = iovec{base: uintptr(s.addr), len: uintptr(n)}
		total += n
		k++
		guarded = guarded || s.kind == segReply
	}
	var n int
	var err error
	if guarded {
		o.mem.guard.enter()
		if o.repliesAllowed() {
			n, err = o.sock.send(v[:k], total)
		} else {
			err = errRegionClosed // the header of the reply has been sent already
		}
		o.mem.guard.exit()
	} else {
		n, err = o.sock.send(v[:k], total)
	}
	if err != nil {
		if !errors.Is(err, errRegionClosed) {
			err = fmt.Errorf("tcp: send: %w: %w", fabric.ErrPeerGone, err)
		}
		o.err = err
		return false
	}
	o.advance(n)
	return !o.sock.blocked
}

// repliesAllowed reports whether the regions of all queued replies still exist.
func (o *outgoing) repliesAllowed() bool {
	for i := o.head; i != o.tail; i++ {
		s := &o.segs[i%maxSegs]
		if s.kind == segReply && !o.mem.keys.Allows(s.rkey, s.addr, uint64(s.n), fabric.AccessRemoteRead) {
			return false
		}
	}
	return true
}

// advance drops n sent bytes.
func (o *outgoing) advance(n int) {
	for n > 0 {
		s := &o.segs[o.head%maxSegs]
		if uint32(n) < s.n {
			s.addr += uint64(n)
			s.n -= uint32(n)
			return
		}
		n -= int(s.n)
		if s.kind == segStage {
			o.stHead = s.end
		}
		o.head++
	}
}

// ackable reports whether the peer can have executed all requests before seq. It cannot
// while payload of one of them waits here. lanes.ackable does the same for lanes.
func (o *outgoing) ackable(seq uint32) bool {
	if o.curPiece != o.curEnd && int32(seq-o.curSeq) > 0 {
		return false
	}
	for i := o.head; i != o.tail; i++ {
		if s := &o.segs[i%maxSegs]; s.kind == segOwn {
			return int32(seq-s.seq) <= 0
		}
	}
	return true
}
