//go:build linux || darwin || freebsd

package tcp

import "github.com/seed33544411/rma/fabric"

// receiver parses the incoming byte stream of the first connection: requests are passed to
// the responder, replies and refusals to the requester.
type receiver struct {
	incoming
	req   *requester
	resp  *responder
	comps *completions
}

// receive receives and processes the data of the socket. It returns the number of receives
// with data, and whether there is no more now.
// Hot path.
func (r *receiver) receive() (got int, empty bool, f *failure) {
	x := &r.incoming
	if x.paused {
		x.paused = false
		if f := r.parse(); f != nil || x.paused {
			return 0, false, f
		}
	}
	if x.held {
		if r.resp.laned.on {
			return 0, true, nil
		}
		x.held = false
		if f := r.parse(); f != nil || x.paused {
			return 0, false, f
		}
	}
	if x.st == rxHeader && r.comps.full() {
		x.paused = true
		return 0, false, nil
	}
	for got < rxBudget {
		n, want, err := r.recv()
		switch {
		case err != nil:
			return got, false, lost(err)
		case n == 0:
			return got, true, nil
		}
		got++
		if f := r.parse(); f != nil || x.paused {
			return got, false, f
		}
		if n < want || x.held {
			return got, true, nil
		}
	}
	return got, false, nil
}

// recv makes one system call. want is the number of bytes it could have received.
func (r *receiver) recv() (n, want int, err error) {
	x := &r.incoming
	switch {
	case x.st == rxWrite && r.resp.direct():
		return r.resp.receive()
	case x.st == rxReply && x.left >= directMin:
		return r.req.receive()
	}
	return x.fetch()
}

// parse processes the buffer as far as it is complete.
// Hot path.
func (r *receiver) parse() *failure {
	x := &r.incoming
	for {
		have := x.w - x.r
		switch x.st {
		case rxHeader:
			if have < headerSize {
				return nil
			}
			if r.comps.full() {
				x.paused = true
				return nil
			}
			if r.resp.laned.on && wireOp(x.buf[x.r]) <= opCompareSwap {
				x.held = true
				return nil
			}
			if f := r.frame(); f != nil {
				return f
			}
		case rxWrite:
			if !r.resp.placeNext() {
				return nil
			}
		case rxReply:
			if !r.req.place() {
				return nil
			}
			if f := r.req.replied(); f != nil {
				return f
			}
		case rxSkip:
			if !x.discard() {
				return nil
			}
		case rxOperands:
			if have < operandsSize {
				return nil
			}
			r.resp.atomic()
		case rxResult:
			if have < resultSize {
				return nil
			}
			r.req.result()
			if f := r.req.replied(); f != nil {
				return f
			}
		}
	}
}

// frame handles the header at the front of the buffer.
// Hot path.
func (r *receiver) frame() *failure {
	x := &r.incoming
	h := &x.h
	if err := h.parse(x.have()); err != nil {
		return malformed(err)
	}
	x.r += headerSize
	if h.ack != r.req.acked {
		if f := r.req.onAck(h.ack); f != nil {
			return f
		}
	}
	switch h.op {
	case opWrite, opRead, opFetchAdd, opCompareSwap:
		return r.resp.request(h)
	case opReadReply, opAtomicReply:
		return r.req.onReply(h)
	case opNak:
		return r.req.onNak(h)
	case opBulk:
		return malformed(errBadBulk)
	}
	if h.flags&wireEnd != 0 {
		return &failure{status: fabric.StatusPeerGone, cause: errHungUp}
	}
	if h.flags&wireAck != 0 {
		r.resp.out.acks.demand()
	}
	return nil
}
