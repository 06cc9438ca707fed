//go:build linux || darwin || freebsd

package tcp

import (
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
)

// pumpLanes gives every lane one send's worth, so that who waits on the first
// connection is served in between. Class: bulk.
func (e *endpoint) pumpLanes() {
	b := &e.bulk
	for i := range b.lanes {
		if b.err != nil || e.tx.dead {
			return
		}
		ln := &b.lanes[i]
		chunk := b.tune.size(e.path.mss)
		loaded := uint64(0)
		for j := ln.head; j != ln.tail; j++ {
			loaded += uint64(ln.frames[j%maxFrames].left)
		}
		for loaded < uint64(chunk) && ln.tail-ln.head < maxFrames {
			n := b.load(ln, &e.sq)
			if n == 0 {
				break
			}
			loaded += uint64(n)
		}
		if ln.head != ln.tail {
			e.laneSend(ln, chunk)
		}
	}
}

// load gives the lane a frame and returns its payload's bytes, 0 if there is none.
func (b *bulk) load(ln *lane, q *sendq) uint32 {
	i := b.head
	for i != b.tail && b.out[i%maxTransfers].given == b.out[i%maxTransfers].n {
		i++
	}
	if i == b.tail {
		return 0
	}
	t := &b.out[i%maxTransfers]
	n := t.n - t.given
	if len(b.lanes) > 1 {
		n = min(n, stripe)
	}
	h := header{op: opBulk, seq: t.seq, n: n, addr: uint64(t.given)}
	if t.reply {
		h.flags = wireReply
	}
	f := &ln.frames[ln.tail%maxFrames]
	ln.tail++
	h.put(f.hdr[:])
	f.at, f.left, f.of, f.sge, f.off, f.addr = 0, n, i, t.sge, t.off, t.addr+uint64(t.given)
	t.given += n
	if !t.reply {
		t.sge, t.off = q.forward(t.sge, t.off, n)
	}
	return n
}

// forward moves a place in a list of pieces by n bytes.
func (q *sendq) forward(sge, off, n uint32) (uint32, uint32) {
	for n > 0 {
		m := q.piece(sge).Len - off
		if n < m {
			return sge, off + n
		}
		n -= m
		sge++
		off = 0
	}
	return sge, off
}

// laneSend hands what is loaded to the lane's socket, chunk bytes at most.
func (e *endpoint) laneSend(ln *lane, chunk int) {
	l, b := e.l, &e.bulk
	k, total, guarded := 0, 0, false
	for i := ln.head; i != ln.tail && total < chunk && k < maxIov-1; i++ {
		f := &ln.frames[i%maxFrames]
		t := &b.out[f.of%maxTransfers]
		if rest := f.hdr[f.at:]; len(rest) != 0 {
			l.io.iov[k] = iovec{base: uintptr(fabric.Addr(rest)), len: uintptr(len(rest))}
			k++
			total += len(rest)
		}
		room := int(min(f.left, uint32(max(chunk-total, 0))))
		if t.reply {
			l.io.iov[k] = iovec{base: uintptr(f.addr), len: uintptr(room)}
			k++
			total += room
			guarded = true
			continue
		}
		sge, off := f.sge, f.off
		for room > 0 && k < maxIov {
			p := e.sq.piece(sge)
			n := int(min(p.Len-off, uint32(room)))
			l.io.iov[k] = iovec{base: uintptr(p.Addr + uint64(off)), len: uintptr(n)}
			k++
			total += n
			room -= n
			sge++
			off = 0
		}
		if room > 0 {
			break
		}
	}
	var n int
	var err error
	if guarded {
		l.guard.enter()
		if !e.answersAllowed(ln) {
			l.guard.exit()
			// The answer was announced: the stream cannot go on.
			e.tx.dead, e.tx.err = true, errRegionClosed
			return
		}
		n, err = ln.send(l.io.iov[:k], total)
		l.guard.exit()
	} else {
		n, err = ln.send(l.io.iov[:k], total)
	}
	switch {
	case err != nil:
		e.laneFailed(ln, err)
	case n > 0:
		if !b.tune.settled() {
			b.tune.tried(chunk, total, n, cpu.Ticks())
		}
		b.sent(ln, &e.sq, n)
	}
}

// answersAllowed reports whether the regions of the answers that are loaded still
// are there.
func (e *endpoint) answersAllowed(ln *lane) bool {
	for i := ln.head; i != ln.tail; i++ {
		f := &ln.frames[i%maxFrames]
		t := &e.bulk.out[f.of%maxTransfers]
		if t.reply && !e.l.keys.Allows(t.rkey, f.addr, uint64(f.left), fabric.AccessRemoteRead) {
			return false
		}
	}
	return true
}

// sent drops n bytes from the front of what is loaded.
func (b *bulk) sent(ln *lane, q *sendq, n int) {
	for n > 0 {
		f := &ln.frames[ln.head%maxFrames]
		if m := min(headerSize-f.at, n); m > 0 {
			f.at += m
			n -= m
		}
		t := &b.out[f.of%maxTransfers]
		m := min(f.left, uint32(n))
		f.left -= m
		f.addr += uint64(m)
		if !t.reply {
			f.sge, f.off = q.forward(f.sge, f.off, m)
		}
		t.unsent -= m
		if n -= int(m); f.left == 0 && f.at == headerSize {
			ln.head++
		}
	}
	for b.head != b.tail && b.out[b.head%maxTransfers].unsent == 0 {
		b.head++
	}
}
