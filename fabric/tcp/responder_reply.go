//go:build linux || darwin || freebsd

package tcp

import (
	"encoding/binary"

	"github.com/seed33544411/rma/fabric"
)

// Kinds of replies.
const (
	replyRead uint8 = iota
	replyAtomic
	replyNak
)

// reply is an answer that this side owes the peer.
type reply struct {
	val    uint64 // replyRead: address; replyAtomic: the old value
	seq    uint32
	rkey   uint32
	n      uint32 // bytes
	kind   uint8
	status fabric.Status
}

// replies holds the replies due, oldest first. Its size is the bound that the peer
// announced plus one place for a refusal.
type replies struct {
	buf        []reply // length a power of two
	limit      uint32
	head, tail uint32
}

func (q *replies) init(limit uint32) {
	q.limit = limit
	q.buf = make([]reply, pow2(int(limit)+1))
}

func (q *replies) empty() bool   { return q.head == q.tail }
func (q *replies) full() bool    { return q.tail-q.head >= q.limit }
func (q *replies) front() *reply { return &q.buf[q.head&uint32(len(q.buf)-1)] }
func (q *replies) pop()          { q.head++ }

func (q *replies) push(r reply) {
	q.buf[q.tail&uint32(len(q.buf)-1)] = r
	q.tail++
}

// ready reports whether there is a reply to be sent now.
func (p *responder) ready() bool {
	if p.replies.empty() {
		return false
	}
	d := p.replies.front()
	return d.kind != replyRead || !p.lanes.full() || !p.lanes.takes(d.n)
}

// put encodes the oldest reply due. It reports false if there is no room.
// Hot path.
func (p *responder) put() bool {
	d := p.replies.front()
	h := header{op: opReadReply, seq: d.seq, n: d.n}
	var b []byte
	switch d.kind {
	case replyRead:
		b = p.putRead(d, &h)
	case replyAtomic:
		h.op = opAtomicReply
		if b = p.out.room(headerSize + resultSize); b != nil {
			binary.LittleEndian.PutUint64(b[headerSize:], d.val)
		}
	default:
		h.op, h.status, h.n = opNak, d.status, 0
		b = p.out.room(headerSize)
	}
	if b == nil {
		return false
	}
	p.out.header(&h, b)
	p.replies.pop()
	return true
}

// replace makes d, the oldest reply due, a refusal: also for a connection that replaces this one. It
// replaces those after it as well, whose requests stay accepted.
func (p *responder) replace(d *reply, st fabric.Status) {
	p.refused, p.status, p.at = true, st, d.seq
	*d = reply{kind: replyNak, seq: d.seq, status: st}
	last := p.replies.head + 1
	p.skew += p.replies.tail - last
	p.replies.tail = last
}

// putRead encodes the answer to a read without its header, for which it returns the place.
// It returns nil if there is no room.
func (p *responder) putRead(d *reply, h *header) []byte {
	laned := p.lanes.takes(d.n)
	copied := d.n <= copyMax && !laned
	size := uint32(headerSize)
	if copied {
		size += d.n
	}
	b := p.out.room(size)
	if b == nil || d.n == 0 {
		return b
	}
	if !p.mem.enter(d.rkey, d.val, uint64(d.n), fabric.AccessRemoteRead) {
		// The region was closed after the request was accepted.
		p.out.unroom(size - headerSize)
		p.replace(d, fabric.StatusRemoteAccess)
		h.op, h.status, h.n = opNak, d.status, 0
		return b
	}
	if copied {
		copy(b[headerSize:], fabric.BytesAt(d.val, int(d.n)))
	}
	p.mem.guard.exit()
	switch {
	case laned:
		h.flags = wireLanes
		p.lanes.add(transfer{n: d.n, seq: d.seq, addr: d.val, rkey: d.rkey, reply: true})
	case !copied:
		p.out.add(seg{addr: d.val, n: d.n, rkey: d.rkey, kind: segReply})
	}
	return b
}
