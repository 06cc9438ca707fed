//go:build linux || darwin || freebsd

package tcp

import (
	"encoding/binary"
	"errors"
	"sync/atomic"

	"github.com/seed33544411/rma/fabric"
)

// laneVisit is about how many bytes one visit receives from a lane before the
// first connection is looked at again, and all that the owner of the link does
// between two polls: with 256 KiB streams of 1 MiB messages were a fifth slower.
const laneVisit = maxAccess

var (
	errNoLanes   = errors.New("payload announced for connections that do not exist")
	errBulkOrder = errors.New("payload not in the order of its announcements")
	errBadBulk   = errors.New("payload that nothing announced")
)

// recvLanes takes what the lanes have. Class: bulk.
func (e *endpoint) recvLanes() {
	b := &e.bulk
	b.again = false
	for i := range b.lanes {
		ln := &b.lanes[i]
		for got := 0; got < laneVisit && b.expect != 0 && b.err == nil; {
			n := e.recvLane(ln)
			if n <= 0 {
				break
			}
			got += n
		}
		if !e.sock.open() {
			return
		}
		b.again = b.again || b.expect != 0 && !ln.stalled && ln.more()
	}
	if e.rx.held && b.on && b.err == nil && b.stuck() {
		e.malformed(errBulkOrder)
	}
}

// stuck reports that every lane holds payload that is not announced. On one lane
// payload comes in the order of the announcements, so while a write is incomplete, and
// the first connection waits for it, its payload cannot be behind all of that.
func (b *bulk) stuck() bool {
	for i := range b.lanes {
		if !b.lanes[i].stalled {
			return false
		}
	}
	return true
}

// recvLane makes one system call. It returns the bytes that it brought, 0 if
// there is no more to be had now.
func (e *endpoint) recvLane(ln *lane) int {
	if ln.inLeft == 0 {
		return e.recvBulkHeader(ln)
	}
	l, b := e.l, &e.bulk
	in := &ln.in
	at := uint32(in.addr) + in.n - ln.inLeft // of the transfer, where the next byte goes
	k, total := 0, 0
	write := in.flags&wireReply == 0
	if write {
		k, total = b.place(l.io.iov[:], at, ln.inLeft)
	} else {
		s := e.sq.slot(in.seq)
		sge, off := e.sq.forward(s.sge, 0, at)
		for room := int(min(ln.inLeft, laneVisit)); room > 0 && k < maxIov-1; {
			p := e.sq.piece(sge)
			n := int(min(p.Len-off, uint32(room)))
			l.io.iov[k] = iovec{uintptr(p.Addr + uint64(off)), uintptr(n)}
			k++
			total += n
			room -= n
			sge++
			off = 0
		}
	}
	want := total
	if uint32(total) == ln.inLeft { // the next header may be there too
		l.io.iov[k] = iovec{uintptr(fabric.Addr(ln.inBuf[:])), headerSize}
		k++
		want += headerSize
	}
	var n int
	var err error
	if write {
		l.guard.enter()
		if !l.keys.Allows(b.h.rkey, b.h.addr, uint64(b.h.n), fabric.AccessRemoteWrite) {
			l.guard.exit()
			b.on = false
			b.expect--
			e.refuse(b.h.seq, fabric.StatusRemoteAccess)
			return 0
		}
		n, err = ln.recv(l.io.iov[:k], want)
		l.guard.exit()
	} else {
		n, err = ln.recv(l.io.iov[:k], want)
	}
	if n == 0 {
		e.laneLost(ln, err)
		return 0
	}
	got := min(n, total)
	ln.inHave = n - got
	ln.inLeft -= uint32(got)
	if write {
		if b.left -= uint32(got); b.left == 0 {
			e.bulkWritten()
		}
	} else if s := e.sq.slot(in.seq); s.left == uint32(got) {
		s.left, s.laned = 0, false
		b.expect--
		b.reads--
		s.done = true
		if !e.retire() {
			return 0
		}
	} else {
		s.left -= uint32(got)
	}
	if ln.inLeft == 0 && ln.inHave == headerSize && !e.beginBulk(ln) {
		return 0
	}
	return n
}

// laneLost judges a receive from a lane that brought nothing: err is nil where that is
// all for now.
func (e *endpoint) laneLost(ln *lane, err error) {
	switch err {
	case nil:
	case errForged:
		e.fail(fabric.StatusRemoteInvalid, errForged)
	default:
		e.laneFailed(ln, err)
	}
}

// recvBulkHeader receives the header of a frame, or looks again at one that came
// before its announcement.
func (e *endpoint) recvBulkHeader(ln *lane) int {
	if ln.inHave < headerSize {
		rest := ln.inBuf[ln.inHave:]
		e.l.io.iov[0] = iovec{uintptr(fabric.Addr(rest)), uintptr(len(rest))}
		n, err := ln.recv(e.l.io.iov[:1], len(rest))
		if n == 0 {
			e.laneLost(ln, err)
			return 0
		}
		if ln.inHave += n; ln.inHave < headerSize {
			return n
		}
	}
	if !e.beginBulk(ln) {
		return 0
	}
	return headerSize
}

// beginBulk acts on the header of a frame. It reports false if the lane cannot
// go on now.
func (e *endpoint) beginBulk(ln *lane) bool {
	b, h := &e.bulk, &ln.in
	if err := h.parse(ln.inBuf[:]); err != nil {
		return e.malformed(err)
	}
	if h.op != opBulk {
		return e.malformed(errBadBulk)
	}
	var size, left uint32
	if h.flags&wireReply != 0 {
		q := &e.sq
		s := q.slot(h.seq)
		if h.seq-q.head >= q.sent-q.head || s.op != fabric.OpRead || s.done {
			return e.malformed(errBadBulk)
		}
		if ln.stalled = !s.laned; ln.stalled {
			return false
		}
		size, left = s.n, s.left
	} else {
		if ahead := int32(h.seq - e.exec); ahead < 0 || ahead > maxDepth {
			return e.malformed(errBadBulk)
		}
		if ln.stalled = !b.on || b.h.seq != h.seq; ln.stalled {
			return false
		}
		size, left = b.h.n, b.left
	}
	for i := range b.lanes { // what others are bringing is not there twice
		if o := &b.lanes[i]; o != ln && o.inLeft != 0 && o.in.seq == h.seq && o.in.flags == h.flags {
			left -= min(left, o.inLeft)
		}
	}
	if h.addr > uint64(size) || uint64(h.n) > uint64(size)-h.addr || h.n > left {
		return e.malformed(errBadBulk)
	}
	ln.inHave, ln.inLeft = 0, h.n
	return true
}

// announced notes that payload may come now.
func (b *bulk) announced() {
	b.expect++
	for i := range b.lanes {
		ln := &b.lanes[i]
		b.again = b.again || ln.stalled || ln.more()
		ln.stalled = false
	}
}

// expectWrite begins a write of the peer whose payload comes by the lanes. It
// reports false if the endpoint went down.
func (e *endpoint) expectWrite(h *header) bool {
	b := &e.bulk
	if len(b.lanes) == 0 {
		return e.malformed(errNoLanes)
	}
	if !e.l.keys.Allows(h.rkey, h.addr, uint64(h.n), fabric.AccessRemoteWrite) {
		e.refuse(h.seq, fabric.StatusRemoteAccess)
		return true
	}
	b.on, b.h, b.left, b.last = true, *h, h.n, 0
	b.announced()
	if (h.addr+uint64(h.n))&7 == 0 && h.n >= 8 {
		b.last = 8
	}
	return true
}

// expectReply begins an answer whose payload comes by the lanes.
func (e *endpoint) expectReply(s *slot) bool {
	b := &e.bulk
	if len(b.lanes) == 0 {
		return e.malformed(errNoLanes)
	}
	s.laned, s.left = true, s.n
	b.announced()
	b.reads++
	e.sq.rdHead++
	return true
}

// place fills v with where bytes at to at+n of the peer's write go: into the
// region, but for its last word.
func (b *bulk) place(v []iovec, at, n uint32) (k, total int) {
	n = min(n, laneVisit)
	if body := b.h.n - b.last; at < body {
		m := min(n, body-at)
		v[0] = iovec{uintptr(b.h.addr + uint64(at)), uintptr(m)}
		k, total = 1, int(m)
		at += m
		n -= m
	}
	if n > 0 { // only the last word is left
		w := b.word[at-(b.h.n-b.last):]
		v[k] = iovec{uintptr(fabric.Addr(w)), uintptr(n)}
		k++
		total += int(n)
	}
	return k, total
}

// bulkWritten ends the peer's write: its last word is stored, and requests behind
// it go on.
func (e *endpoint) bulkWritten() {
	b, l := &e.bulk, e.l
	b.on = false
	b.expect--
	if b.last != 0 {
		l.guard.enter()
		ok := l.keys.Allows(b.h.rkey, b.h.addr, uint64(b.h.n), fabric.AccessRemoteWrite)
		if ok {
			atomic.StoreUint64(word(b.h.addr+uint64(b.h.n)-8), binary.NativeEndian.Uint64(b.word[:]))
		}
		l.guard.exit()
		if !ok {
			e.refuse(b.h.seq, fabric.StatusRemoteAccess)
			return
		}
	}
	e.wrote(&b.h)
}
