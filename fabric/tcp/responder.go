//go:build linux || darwin || freebsd

package tcp

import (
	"encoding/binary"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/softlink"
)

// responder executes the requests of the peer, in the order of their arrival: each is
// checked against the regions before any of it is executed. Answers are queued in replies,
// acknowledgements in out.
type responder struct {
	mem   *memory
	in    *incoming
	out   *outgoing
	lanes *lanes
	comps *completions

	replies replies
	resumes bool          // the peer may request reads once more
	refused bool          // a request was refused: execute no more
	status  fabric.Status // of the refused request
	at      uint32        // its number
	skew    uint32        // reads and atomics accepted, less replies.tail: one that is refused on arrival is none, and a refusal may replace some

	// The write whose payload is received on the first connection.
	addr uint64 // address of the next byte
	last int64  // 8 if its last word is stored atomically, else 0

	laned lanedWrite
}

// refuse answers the current request with a refusal and executes no further one.
func (p *responder) refuse(seq uint32, st fabric.Status) {
	p.refused, p.status, p.at = true, st, seq
	p.skew--
	p.replies.push(reply{kind: replyNak, seq: seq, status: st})
}

// refuseWrite refuses the write of h, of whose payload left bytes are still to be received.
func (p *responder) refuseWrite(h *header, left uint64) {
	p.refuse(h.seq, fabric.StatusRemoteAccess)
	p.in.skip(left)
}

// request begins a request whose header has just been read.
// Hot path.
func (p *responder) request(h *header) *failure {
	if p.refused {
		p.in.skip(h.size() - headerSize)
		return nil
	}
	again := h.op == opRead && h.flags&wireAgain != 0
	if h.seq != p.out.acks.executed && !again || again && (!p.resumes || int32(h.seq-p.out.acks.executed) >= 0) {
		return malformed(errBadSeq)
	}
	if h.op == opWrite {
		if h.flags&wireLanes != 0 {
			return p.expect(h)
		}
		p.write(h)
		return nil
	}
	if p.replies.full() {
		return malformed(errTooManyReads)
	}
	if h.op != opRead {
		p.in.st = rxOperands
		return nil
	}
	if h.n != 0 && !p.mem.keys.Allows(h.rkey, h.addr, uint64(h.n), fabric.AccessRemoteRead) {
		p.refuse(h.seq, fabric.StatusRemoteAccess)
		return nil
	}
	p.replies.push(reply{kind: replyRead, seq: h.seq, rkey: h.rkey, n: h.n, val: h.addr})
	if !again {
		p.out.acks.executed++
	}
	return nil
}

// write begins a write whose payload follows, and ends it if all of it has arrived.
// Hot path.
func (p *responder) write(h *header) {
	x, n := p.in, int64(h.n)
	if n == 0 {
		p.wrote(h)
		return
	}
	if !p.mem.enter(h.rkey, h.addr, uint64(n), fabric.AccessRemoteWrite) {
		p.refuseWrite(h, uint64(n))
		return
	}
	whole := int64(x.w-x.r) >= n
	if whole {
		place(h.addr, x.buf[x.r:x.r+int(n)])
	}
	p.mem.guard.exit()
	if whole {
		x.r += int(n)
		p.wrote(h)
		return
	}
	x.st, x.left = rxWrite, n
	p.addr, p.last = h.addr, int64(lastWord(h))
}

// lastWord returns 8 if the last word of a write is stored atomically, else 0.
func lastWord(h *header) uint32 {
	if (h.addr+uint64(h.n))&7 == 0 && h.n >= 8 {
		return 8
	}
	return 0
}

// place copies src to addr. If it ends on an 8-byte boundary, its last 8 bytes are stored
// last and atomically, so that a reader that sees them sees the rest too.
func place(addr uint64, src []byte) {
	n := len(src)
	if n >= 8 && (addr+uint64(n))&7 == 0 {
		n -= 8
		if n > 0 {
			copy(fabric.BytesAt(addr, n), src)
		}
		softlink.Store64(addr+uint64(n), binary.NativeEndian.Uint64(src[n:]))
		return
	}
	copy(fabric.BytesAt(addr, n), src)
}

// direct reports whether enough of the current write is missing to receive it directly into
// place.
func (p *responder) direct() bool { return p.in.left-p.last >= directMin }

// receive receives payload of the current write into place, up to the last word. The buffer
// is empty: placeNext has consumed it.
func (p *responder) receive() (n, want int, err error) {
	x := p.in
	body := x.left - p.last
	total := int(min(body, maxAccess))
	if !p.mem.enter(x.h.rkey, p.addr, uint64(x.left), fabric.AccessRemoteWrite) {
		x.r, x.w = 0, 0
		p.refuseWrite(&x.h, uint64(x.left))
		return x.fetch()
	}
	x.sock.sys.iov[0] = iovec{uintptr(p.addr), uintptr(total)}
	n, want, err = x.direct(1, total, int64(total) == body)
	p.mem.guard.exit()
	p.addr += uint64(min(n, total))
	return n, want, err
}

// placeNext places the received part of the current write. It reports whether the write has
// ended; otherwise more must be received first.
func (p *responder) placeNext() bool {
	x := p.in
	for x.left > 0 {
		have := int64(x.w - x.r)
		n := int(min(have, x.left-p.last))
		if x.left == p.last { // only the last word is missing
			n = int(p.last)
		}
		if n == 0 || have < int64(n) {
			return false
		}
		if !p.mem.enter(x.h.rkey, p.addr, uint64(x.left), fabric.AccessRemoteWrite) {
			p.refuseWrite(&x.h, uint64(x.left))
			return true
		}
		place(p.addr, x.buf[x.r:x.r+n])
		p.mem.guard.exit()
		x.r += n
		p.addr += uint64(n)
		x.left -= int64(n)
		x.copied += uint64(n)
	}
	x.st = rxHeader
	p.wrote(&x.h)
	return true
}

// wrote ends a write.
// Hot path.
func (p *responder) wrote(h *header) {
	a := &p.out.acks
	a.executed++
	if h.flags&wireAck != 0 {
		a.want = true
		a.count++
		if h.n >= longCall {
			a.now = true // the acknowledgement of a bulk transfer does not wait for another frame
		}
	}
	if h.flags&wireNotify != 0 {
		p.comps.notify(h.imm, h.n)
	}
}

// atomic executes an atomic; the buffer begins with its operands.
// Hot path.
func (p *responder) atomic() {
	x := p.in
	h, b := &x.h, x.have()
	x.st = rxHeader
	x.r += operandsSize
	if h.addr&7 != 0 {
		p.refuse(h.seq, fabric.StatusRemoteInvalid)
		return
	}
	operand, compare := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	if !p.mem.enter(h.rkey, h.addr, 8, fabric.AccessRemoteAtomic) {
		p.refuse(h.seq, fabric.StatusRemoteAccess)
		return
	}
	var old uint64
	if h.op == opFetchAdd {
		old = softlink.FetchAdd(h.addr, operand)
	} else {
		old = softlink.CompareSwap(h.addr, compare, operand)
	}
	p.mem.guard.exit()
	p.replies.push(reply{kind: replyAtomic, seq: h.seq, n: resultSize, val: old})
	p.out.acks.executed++
}

// lanedWrite is a write whose payload uses the lanes, if on.
type lanedWrite struct {
	on   bool
	h    header
	left uint32
	word [8]byte // its last word, if that is stored atomically
	last uint32  // 8 in that case, else 0
}

// vec fills v with the destination of bytes at to at+n: the region, except for the last
// word.
func (w *lanedWrite) vec(v []iovec, at, n uint32) (k, total int) {
	if body := w.h.n - w.last; at < body {
		m := min(n, body-at)
		v[0] = iovec{uintptr(w.h.addr + uint64(at)), uintptr(m)}
		k, total = 1, int(m)
		at += m
		n -= m
	}
	if n > 0 { // only the last word is left
		b := w.word[at-(w.h.n-w.last):]
		v[k] = iovec{uintptr(fabric.Addr(b)), uintptr(n)}
		k++
		total += int(n)
	}
	return k, total
}

// expect begins a write whose payload uses the lanes.
func (p *responder) expect(h *header) *failure {
	if p.lanes.none() {
		return malformed(errNoLanes)
	}
	if !p.mem.keys.Allows(h.rkey, h.addr, uint64(h.n), fabric.AccessRemoteWrite) {
		p.refuse(h.seq, fabric.StatusRemoteAccess)
		return nil
	}
	p.laned = lanedWrite{on: true, h: *h, left: h.n, last: lastWord(h)}
	p.lanes.announced()
	return nil
}

// laneFrame checks that a lane may carry payload of write seq. It returns the write's size
// and the number of missing bytes; wait: the write has not been announced.
func (p *responder) laneFrame(seq uint32) (size, left uint32, wait bool, f *failure) {
	if ahead := int32(seq - p.out.acks.executed); ahead < 0 || ahead > maxDepth {
		return 0, 0, false, malformed(errBadBulk)
	}
	w := &p.laned
	return w.h.n, w.left, !w.on || w.h.seq != seq, nil
}

// laneEnter begins an access to the destination of the lanes' payload, which guard.exit
// ends. It returns false if the write has ended: it refuses a write whose region does not
// permit it any longer.
func (p *responder) laneEnter() bool {
	w := &p.laned
	if !w.on {
		return false
	}
	if p.mem.enter(w.h.rkey, w.h.addr, uint64(w.h.n), fabric.AccessRemoteWrite) {
		return true
	}
	p.laneEnd()
	p.refuse(w.h.seq, fabric.StatusRemoteAccess)
	return false
}

// laneEnd ends the write whose payload is received on the lanes.
func (p *responder) laneEnd() {
	p.laned.on = false
	p.lanes.arrived()
}

// laneGot records that a lane received n bytes of the write. After the last of them its
// last word is stored, and requests behind it continue.
func (p *responder) laneGot(n uint32) {
	w := &p.laned
	if w.left -= n; w.left > 0 {
		return
	}
	if w.last != 0 {
		if !p.laneEnter() {
			return
		}
		softlink.Store64(w.h.addr+uint64(w.h.n)-8, binary.NativeEndian.Uint64(w.word[:]))
		p.mem.guard.exit()
	}
	p.laneEnd()
	p.wrote(&w.h)
}
