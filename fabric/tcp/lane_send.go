//go:build linux || darwin || freebsd

package tcp

import (
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
)

// idle reports that no payload waits to be sent.
func (b *lanes) idle() bool { return b.head == b.tail }

func (b *lanes) full() bool { return b.tail-b.head == maxTransfers }

func (b *lanes) transfer(i uint32) *transfer { return &b.out[i%maxTransfers] }

func (b *lanes) add(t transfer) {
	t.unsent = t.n
	*b.transfer(b.tail) = t
	b.tail++
}

// ackable reports whether the peer can have executed all requests before seq. It cannot
// while payload of one of them is here.
func (b *lanes) ackable(seq uint32) bool {
	for i := b.head; i != b.tail; i++ {
		if t := b.transfer(i); !t.reply && t.unsent != 0 {
			return int32(seq-t.seq) <= 0
		}
	}
	return true
}

// canSend reports whether a lane may have something to send.
func (b *lanes) canSend() bool {
	if b.idle() || b.err != nil {
		return false
	}
	for i := range b.all {
		if ln := &b.all[i]; !ln.blocked && (ln.head != ln.tail || b.next() != b.tail) {
			return true
		}
	}
	return false
}

// next returns the number of the transfer whose next part is to be assigned to a lane.
func (b *lanes) next() uint32 {
	i := b.head
	for i != b.tail && b.transfer(i).given == b.transfer(i).n {
		i++
	}
	return i
}

// send makes one send on every lane, so that the first connection is served in between. An
// error means that an announced answer cannot be completed any longer.
func (b *lanes) send() error {
	for i := range b.all {
		if b.err != nil {
			return nil //nolint:nilerr // the endpoint finds it
		}
		ln := &b.all[i]
		chunk := b.tune.size(b.mss)
		loaded := uint64(0)
		for j := ln.head; j != ln.tail; j++ {
			loaded += uint64(ln.frames[j%maxFrames].left)
		}
		for loaded < uint64(chunk) && ln.tail-ln.head < maxFrames {
			n := b.load(ln)
			if n == 0 {
				break
			}
			loaded += uint64(n)
		}
		if b.next() == b.tail {
			chunk = withRest(chunk, loaded+headerSize*uint64(ln.tail-ln.head), b.mss)
		}
		if ln.head != ln.tail {
			if err := b.sendOn(ln, chunk); err != nil {
				return err
			}
		}
	}
	return nil
}

// load assigns a frame to the lane and returns the size of its payload, 0 if there is none.
func (b *lanes) load(ln *lane) uint32 {
	i := b.next()
	if i == b.tail {
		return 0
	}
	t := b.transfer(i)
	n := t.n - t.given
	if len(b.all) > 1 {
		n = min(n, stripe)
	}
	h := header{op: opBulk, seq: t.seq, n: n, addr: uint64(t.given)}
	if t.reply {
		h.flags = wireReply
	}
	f := &ln.frames[ln.tail%maxFrames]
	ln.tail++
	h.put(f.hdr[:])
	f.at, f.left, f.of, f.piece, f.off, f.addr = 0, n, i, t.piece, t.off, t.addr+uint64(t.given)
	t.given += n
	if !t.reply {
		t.piece, t.off = b.own.forward(t.piece, t.off, n)
	}
	return n
}

// sendOn sends the loaded frames on the lane's socket, at most chunk bytes.
func (b *lanes) sendOn(ln *lane, chunk int) error {
	v := &ln.sys.iov
	k, total, guarded := 0, 0, false
	for i := ln.head; i != ln.tail && total < chunk && k < maxIov-1; i++ {
		f := &ln.frames[i%maxFrames]
		if rest := f.hdr[f.at:]; len(rest) != 0 {
			v[k] = iovec{base: uintptr(fabric.Addr(rest)), len: uintptr(len(rest))}
			k++
			total += len(rest)
		}
		room := int(min(f.left, uint32(max(chunk-total, 0))))
		if b.transfer(f.of).reply {
			v[k] = iovec{base: uintptr(f.addr), len: uintptr(room)}
			k++
			total += room
			guarded = true
			continue
		}
		used, n := b.own.vec(v[k:], f.piece, f.off, room)
		k += used
		total += n
		if n < room {
			break
		}
	}
	var n int
	var err error
	if guarded {
		b.mem.guard.enter()
		if !b.answersAllowed(ln) {
			b.mem.guard.exit()
			return errRegionClosed // the answer was announced
		}
		n, err = ln.send(v[:k], total)
		b.mem.guard.exit()
	} else {
		n, err = ln.send(v[:k], total)
	}
	switch {
	case err != nil:
		b.fail(ln, err)
	case n > 0:
		if !b.tune.settled() {
			b.tune.tried(chunk, total, n, cpu.Ticks())
		}
		b.sent(ln, n)
	}
	return nil
}

// answersAllowed reports whether the regions of the loaded answers still exist.
func (b *lanes) answersAllowed(ln *lane) bool {
	for i := ln.head; i != ln.tail; i++ {
		f := &ln.frames[i%maxFrames]
		t := b.transfer(f.of)
		if t.reply && !b.mem.keys.Allows(t.rkey, f.addr, uint64(f.left), fabric.AccessRemoteRead) {
			return false
		}
	}
	return true
}

// sent drops n bytes from the front of the loaded frames.
func (b *lanes) sent(ln *lane, n int) {
	for n > 0 {
		f := &ln.frames[ln.head%maxFrames]
		if m := min(headerSize-f.at, n); m > 0 {
			f.at += m
			n -= m
		}
		t := b.transfer(f.of)
		m := min(f.left, uint32(n))
		f.left -= m
		f.addr += uint64(m)
		if !t.reply {
			f.piece, f.off = b.own.forward(f.piece, f.off, m)
		}
		t.unsent -= m
		if n -= int(m); f.left == 0 && f.at == headerSize {
			ln.head++
		}
	}
	for b.head != b.tail && b.transfer(b.head).unsent == 0 {
		b.head++
	}
}

// pending reports that lanes have work for which there is no event.
func (b *lanes) pending() bool { return b.err != nil || b.again || b.canSend() }
