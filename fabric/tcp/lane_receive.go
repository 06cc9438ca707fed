//go:build linux || darwin || freebsd

package tcp

import (
	"errors"

	"github.com/seed33544411/rma/fabric"
)

// laneVisit is the approximate number of bytes that one visit receives from a lane before
// the first connection is polled again and the owner of the link continues. With 256 KiB,
// streams of 1 MiB messages were a fifth slower.
const laneVisit = maxAccess

// laneReceiver receives the payload on the lanes into its place, which the responder
// determines for writes and the requester for answers.
type laneReceiver struct {
	lanes *lanes
	in    *incoming
	req   *requester
	resp  *responder
}

// receive receives the data of all lanes.
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

// receiveOn makes one system call. It returns the number of bytes received, 0 if
// there are no more now.
func (r *laneReceiver) receiveOn(ln *lane) (int, *failure) {
	if ln.inLeft == 0 {
		return r.receiveHeader(ln)
	}
	h, v := &ln.in, &ln.sys.iov
	at := uint32(h.addr) + h.n - ln.inLeft // offset in the transfer of the next byte
	visit := min(ln.inLeft, laneVisit)
	var k, total int
	write := h.flags&wireReply == 0
	if write {
		k, total = r.resp.laned.vec(v[:], at, visit)
	} else {
		k, total = r.req.laneVec(v[:maxIov-1], h.seq, at, visit)
	}
	want := total
	if uint32(total) == ln.inLeft { // the next header may have arrived too
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

// nothing classifies a receive from a lane without data: err is nil if there is just no
// data now.
func (r *laneReceiver) nothing(ln *lane, err error) *failure {
	switch {
	case err == nil:
	case errors.Is(err, errForged):
		return lost(err)
	default:
		r.lanes.fail(ln, err)
	}
	return nil
}

// receiveHeader receives the header of a frame, or retries one that arrived before its
// announcement.
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

// begin handles the header of a frame. It returns false if the lane cannot continue now.
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
	for i := range r.lanes.all { // bytes that others are receiving must not arrive twice
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
