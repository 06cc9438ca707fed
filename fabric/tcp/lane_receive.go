//go:build linux || darwin || freebsd

package tcp

import (
	"github.com/seed33544411/rma/fabric"
)

// laneVisit is about how many bytes one visit receives from a lane before the
// first connection is polled again, and all that the owner of the link does
// between two polls: with 256 KiB streams of 1 MiB messages were a fifth slower.
const laneVisit = maxAccess

// laneReceiver receives the payload on the lanes into its place, which the responder
// names for writes and the requester for answers.
type laneReceiver struct {
	lanes *lanes
	in    *incoming
	req   *requester
	resp  *responder
}

// receive takes what the lanes have.
func (r *laneReceiver) receive() *failure {
	b := r.lanes
	b.again = false
	for i := range b.all {
		ln := &b.all[i]
		for got := 0; got < laneVisit && b.expected != 0 && b.err == nil; {
			n, f := r.receiveOn(ln)
			if f != nil {
				return f
			}
			if n == 0 {
				break
			}
			got += n
		}
		b.again = b.again || b.expected != 0 && !ln.stalled && ln.more()
	}
	if r.in.held && r.resp.laned.on && b.err == nil && b.stuck() {
		return malformed(errBulkOrder)
	}
	return nil
}

// receiveOn makes one system call. It returns the bytes that it brought, 0 if
// there is no more to be had now.
func (r *laneReceiver) receiveOn(ln *lane) (int, *failure) {
	if ln.inLeft == 0 {
		return r.receiveHeader(ln)
	}
	h, v := &ln.in, &ln.sys.iov
	at := uint32(h.addr) + h.n - ln.inLeft // of the transfer, where the next byte goes
	visit := min(ln.inLeft, laneVisit)
	var k, total int
	write := h.flags&wireReply == 0
	if write {
		k, total = r.resp.laned.vec(v[:], at, visit)
	} else {
		k, total = r.req.laneVec(v[:maxIov-1], h.seq, at, visit)
	}
	want := total
	if uint32(total) == ln.inLeft { // the next header may be there too
		v[k] = iovec{uintptr(fabric.Addr(ln.inBuf[:])), headerSize}
		k++
		want += headerSize
	}
	if write && !r.resp.laneEnter() {
		ln.stalled = true
		return 0, nil
	}
	n, err := ln.recv(v[:k], want)
	if write {
		r.resp.mem.guard.exit()
	}
	if n == 0 {
		return 0, r.nothing(ln, err)
	}
	got := uint32(min(n, total))
	ln.inHave = n - int(got)
	ln.inLeft -= got
	if write {
		r.resp.laneGot(got)
	} else if f := r.req.laneGot(h.seq, got); f != nil {
		return 0, f
	}
	if ln.inLeft == 0 && ln.inHave == headerSize {
		if ok, f := r.begin(ln); !ok {
			return 0, f
		}
	}
	return n, nil
}

// nothing judges a receive from a lane that brought nothing: err is nil where that is
// all for now.
func (r *laneReceiver) nothing(ln *lane, err error) *failure {
	switch err {
	case nil:
	case errForged:
		return lost(err)
	default:
		r.lanes.fail(ln, err)
	}
	return nil
}

// receiveHeader receives the header of a frame, or tries again one that came
// before its announcement.
func (r *laneReceiver) receiveHeader(ln *lane) (int, *failure) {
	if ln.inHave < headerSize {
		rest, v := ln.inBuf[ln.inHave:], &ln.sys.iov
		v[0] = iovec{uintptr(fabric.Addr(rest)), uintptr(len(rest))}
		n, err := ln.recv(v[:1], len(rest))
		if n == 0 {
			return 0, r.nothing(ln, err)
		}
		if ln.inHave += n; ln.inHave < headerSize {
			return n, nil
		}
	}
	if ok, f := r.begin(ln); !ok {
		return 0, f
	}
	return headerSize, nil
}

// begin acts on the header of a frame. It reports false if the lane cannot go on now.
func (r *laneReceiver) begin(ln *lane) (bool, *failure) {
	h := &ln.in
	if err := h.parse(ln.inBuf[:]); err != nil {
		return false, malformed(err)
	}
	if h.op != opBulk {
		return false, malformed(errBadBulk)
	}
	var size, left uint32
	var wait bool
	var f *failure
	if h.flags&wireReply != 0 {
		size, left, wait, f = r.req.laneFrame(h.seq)
	} else {
		size, left, wait, f = r.resp.laneFrame(h.seq)
	}
	if f != nil {
		return false, f
	}
	if ln.stalled = wait; wait {
		return false, nil
	}
	for i := range r.lanes.all { // what others are bringing is not there twice
		if o := &r.lanes.all[i]; o != ln && o.inLeft != 0 && o.in.seq == h.seq && o.in.flags == h.flags {
			left -= min(left, o.inLeft)
		}
	}
	if h.addr > uint64(size) || uint64(h.n) > uint64(size)-h.addr || h.n > left {
		return false, malformed(errBadBulk)
	}
	ln.inHave, ln.inLeft = 0, h.n
	return true, nil
}
