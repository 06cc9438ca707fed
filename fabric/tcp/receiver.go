//go:build linux || darwin || freebsd

package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/seed33544411/rma/fabric"
)

const (
	// rxSize is the receive buffer: what one receive of small frames brings. A
	// large frame that begins in it is copied as far as it has come.
	rxSize = 32 << 10

	// directMin is the payload still to come from which it is received straight
	// into its place.
	directMin = 2 << 10

	// trailer is how much of the receive buffer a direct receive adds behind the
	// payload: enough for the held-back last word and the next header, little
	// enough that hardly any of the next payload takes the detour.
	trailer = 256

	// maxScatter bounds what one receive scatters over the pieces of a read: an int
	// may have 32 bits.
	maxScatter = 1 << 30

	// rxBudget bounds the receives of one visit.
	rxBudget = 16
)

// States of the incoming byte stream.
const (
	rxHeader   uint8 = iota // at a frame
	rxWrite                 // in the payload of a peer's write
	rxReply                 // in the payload of a reply to a read of ours
	rxSkip                  // in payload that nobody wants
	rxOperands              // at the operands of an atomic
	rxResult                // at the result of an atomic of ours
)

// rx is the incoming byte stream. Bytes buf[r:w] are received and not consumed.
type rx struct {
	buf    []byte
	r, w   int
	h      header // of the current frame
	addr   uint64 // rxWrite: where the next byte goes
	left   int64  // bytes of payload not consumed yet, up to maxMessage
	last   int64  // rxWrite: 8 if the last word is to be stored at once, else 0
	sge    uint32 // rxReply: current piece
	off    uint32 // rxReply: bytes of it that are filled
	st     uint8
	paused bool   // too many notifications wait for delivery
	copied uint64 // bytes of large payload that went through buf
	held   bool   // a request waits for the payload of the one before it
}

func (x *rx) skip(n uint64) {
	x.left = int64(n)
	if n != 0 {
		x.st = rxSkip
	}
}

var (
	errBadAck   = errors.New("acknowledges requests that were not sent")
	errBadReply = errors.New("reply that answers nothing")
	errBadNak   = errors.New("refusal that answers nothing")
)

// receive takes what the socket has and acts on it. It reports whether that was
// all. Class: short, bulk.
func (e *endpoint) receive() bool {
	x := &e.rx
	if x.paused {
		x.paused = false
		if !e.parse() || x.paused {
			return false
		}
	}
	if x.held {
		if e.bulk.on {
			return true
		}
		x.held = false
		if !e.parse() || x.paused {
			return false
		}
	}
	if x.st == rxHeader && e.notes >= maxNotes {
		x.paused = true
		return false
	}
	for range rxBudget {
		n, want, err := e.recvOnce()
		switch {
		case err == errForged:
			e.fail(fabric.StatusRemoteInvalid, err)
			return false
		case err == errHungUp:
			e.fail(fabric.StatusPeerGone, err)
			return false
		case err != nil:
			e.fail(fabric.StatusPeerGone, fmt.Errorf("tcp: receive: %w: %w", fabric.ErrPeerGone, err))
			return false
		case n == 0:
			return true
		}
		e.l.count(e)
		if !e.parse() || x.paused {
			return false
		}
		if n < want || x.held {
			return true
		}
	}
	return false
}

// recvOnce makes one system call and accounts for what it brought. want is what
// it could have brought.
func (e *endpoint) recvOnce() (n, want int, err error) {
	x := &e.rx
	switch {
	case x.st == rxWrite && x.left-x.last >= directMin:
		return e.recvWrite()
	case x.st == rxReply && x.left >= directMin:
		return e.recvReply()
	}
	if x.r > 0 { // at most a partial header or word is left
		x.w = copy(x.buf, x.buf[x.r:x.w])
		x.r = 0
	}
	b := x.buf[x.w:]
	e.l.io.iov[0] = iovec{uintptr(fabric.Addr(b)), uintptr(len(b))}
	n, err = e.sock.recv(e.l.io.iov[:1], len(b))
	x.w += n
	return n, len(b), err
}

// recvWrite receives payload of a peer's write into its place, up to the last
// word. The buffer is empty: parse has placed what was in it.
func (e *endpoint) recvWrite() (n, want int, err error) {
	x, l := &e.rx, e.l
	x.r, x.w = 0, 0
	whole := x.left-x.last <= maxAccess
	direct := int(min(x.left-x.last, maxAccess))
	l.guard.enter()
	if !l.keys.Allows(x.h.rkey, x.addr, uint64(x.left), fabric.AccessRemoteWrite) {
		l.guard.exit()
		e.refuse(x.h.seq, fabric.StatusRemoteAccess)
		x.skip(uint64(x.left))
		return e.recvOnce()
	}
	want = direct
	k := 1
	l.io.iov[0] = iovec{uintptr(x.addr), uintptr(direct)}
	if whole {
		l.io.iov[1] = iovec{uintptr(fabric.Addr(x.buf)), trailer}
		want += trailer
		k = 2
	}
	n, err = e.sock.recv(l.io.iov[:k], want)
	l.guard.exit()
	got := min(n, direct)
	x.addr += uint64(got)
	x.left -= int64(got)
	x.w = n - got
	return n, want, err
}

// recvReply receives payload of a read reply into the pieces of the request.
func (e *endpoint) recvReply() (n, want int, err error) {
	x, l, q := &e.rx, e.l, &e.sq
	x.r, x.w = 0, 0
	k, direct := 0, 0
	off := x.off
	room := int(min(x.left, maxScatter))
	for i := x.sge; direct < room && k < maxIov-1; i++ {
		p := q.piece(i)
		m := int(min(p.Len-off, uint32(room-direct)))
		l.io.iov[k] = iovec{uintptr(p.Addr + uint64(off)), uintptr(m)}
		direct += m
		off = 0
		k++
	}
	want = direct
	if int64(direct) == x.left {
		l.io.iov[k] = iovec{uintptr(fabric.Addr(x.buf)), trailer}
		want += trailer
		k++
	}
	n, err = e.sock.recv(l.io.iov[:k], want)
	got := min(n, direct)
	x.filled(q, got)
	x.w = n - got
	return n, want, err
}

// filled moves the reply's position by n bytes.
func (x *rx) filled(q *sendq, n int) {
	x.left -= int64(n)
	for n > 0 {
		m := q.piece(x.sge).Len - x.off
		if uint32(n) < m {
			x.off += uint32(n)
			return
		}
		n -= int(m)
		x.sge++
		x.off = 0
	}
}

// parse consumes the buffer as far as it goes. It reports false if the endpoint
// went down. Class: short.
func (e *endpoint) parse() bool {
	x := &e.rx
	for {
		have := x.w - x.r
		switch x.st {
		case rxHeader:
			if have < headerSize {
				return true
			}
			if e.notes >= maxNotes {
				x.paused = true
				return true
			}
			if e.bulk.on && wireOp(x.buf[x.r]) <= opCompareSwap {
				x.held = true
				return true
			}
			if !e.begin() {
				return false
			}
		case rxWrite:
			if !e.takeWrite(have) {
				return true
			}
		case rxReply:
			if have == 0 && x.left > 0 {
				return true
			}
			n := e.takeReply(x.buf[x.r:x.w])
			x.copied += uint64(n)
			if x.r += n; x.left == 0 && !e.replied() {
				return false
			}
		case rxSkip:
			n := int(min(int64(have), x.left))
			x.r += n
			if x.left -= int64(n); x.left > 0 {
				return true
			}
			x.st = rxHeader
		case rxOperands:
			if have < operandsSize {
				return true
			}
			x.st = rxHeader
			e.atomic(x.buf[x.r : x.r+operandsSize])
			x.r += operandsSize
		case rxResult:
			if have < resultSize {
				return true
			}
			s := e.sq.slot(x.h.seq)
			var b [8]byte
			binary.NativeEndian.PutUint64(b[:], binary.LittleEndian.Uint64(x.buf[x.r:]))
			copy(fabric.BytesAt(e.sq.piece(s.sge).Addr, 8), b[:])
			x.r += resultSize
			if !e.replied() {
				return false
			}
		}
	}
}

// begin acts on the header at the front of the buffer.
func (e *endpoint) begin() bool {
	x := &e.rx
	h := &x.h
	if err := h.parse(x.buf[x.r:x.w]); err != nil {
		return e.malformed(err)
	}
	x.r += headerSize
	if h.ack != e.sq.acked && !e.onAck(h.ack) {
		return false
	}
	switch h.op {
	case opWrite, opRead, opFetchAdd, opCompareSwap:
		return e.request(h)
	case opReadReply, opAtomicReply:
		return e.reply(h)
	case opNak:
		return e.onNak(h)
	case opBulk:
		return e.malformed(errBadBulk)
	}
	if h.flags&wireAck != 0 {
		e.ackWant, e.ackNow = true, true
	}
	return true
}

// onAck takes a cumulative acknowledgement.
func (e *endpoint) onAck(ack uint32) bool {
	q := &e.sq
	if ack-q.acked > q.sent-q.acked || e.tx.head != e.tx.tail && !e.tx.ackable(ack) || e.bulk.head != e.bulk.tail && !e.bulk.ackable(ack) {
		return e.malformed(errBadAck)
	}
	q.acked = ack
	return e.retire()
}

// reply begins the payload of a reply.
func (e *endpoint) reply(h *header) bool {
	x, q := &e.rx, &e.sq
	if q.readsInFlight() == 0 || q.reads[q.rdHead%maxReads] != h.seq || int32(q.acked-h.seq) <= 0 {
		return e.malformed(errBadReply)
	}
	s := q.slot(h.seq)
	if (s.op == fabric.OpRead) != (h.op == opReadReply) || s.n != h.n {
		return e.malformed(errBadReply)
	}
	if h.flags&wireLanes != 0 {
		return e.expectReply(s)
	}
	if h.op == opAtomicReply {
		x.st = rxResult
		return true
	}
	x.st, x.left, x.sge, x.off = rxReply, int64(s.n), s.sge, 0
	return true
}

// takeReply copies b to the pieces of the read and returns the bytes used.
func (e *endpoint) takeReply(b []byte) int {
	x, q := &e.rx, &e.sq
	n := 0
	for n < len(b) && x.left > 0 {
		p := q.piece(x.sge)
		m := copy(fabric.BytesAt(p.Addr+uint64(x.off), int(min(p.Len-x.off, uint32(len(b)-n)))), b[n:])
		x.filled(q, m)
		n += m
	}
	return n
}

// replied ends a reply.
func (e *endpoint) replied() bool {
	x, q := &e.rx, &e.sq
	x.st = rxHeader
	q.rdHead++
	q.slot(x.h.seq).done = true
	return e.retire()
}

// takeWrite places buffered payload of a peer's write. It reports false when
// more must be received first.
func (e *endpoint) takeWrite(have int) bool {
	x, l := &e.rx, e.l
	for {
		if x.left == 0 {
			x.st = rxHeader
			e.wrote(&x.h)
			return true
		}
		n := int(min(int64(have), x.left-x.last))
		if x.left == x.last { // only the last word is missing
			n = int(x.last)
			if have < n {
				return false
			}
		}
		if n == 0 {
			return false
		}
		l.guard.enter()
		ok := l.keys.Allows(x.h.rkey, x.addr, uint64(x.left), fabric.AccessRemoteWrite)
		if ok {
			place(x.addr, x.buf[x.r:x.r+n])
		}
		l.guard.exit()
		if !ok {
			e.refuse(x.h.seq, fabric.StatusRemoteAccess)
			x.skip(uint64(x.left))
			return true
		}
		x.r += n
		x.addr += uint64(n)
		x.left -= int64(n)
		x.copied += uint64(n)
		have -= n
	}
}

// onNak takes a refusal: requests before it are complete, it fails.
func (e *endpoint) onNak(h *header) bool {
	q := &e.sq
	if q.head == q.sent || q.head != h.seq {
		return e.malformed(errBadNak)
	}
	e.fail(h.status, fmt.Errorf("tcp: %w", h.status.Err()))
	return false
}

// malformed takes the endpoint down for a peer that breaks the protocol.
func (e *endpoint) malformed(why error) bool {
	e.fail(fabric.StatusRemoteInvalid, fmt.Errorf("tcp: %w: malformed frame from the peer: %w", fabric.ErrRemoteInvalid, why))
	return false
}
