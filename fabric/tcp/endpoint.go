//go:build linux || darwin || freebsd

package tcp

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/softlink"
	"github.com/seed33544411/rma/internal/offheap"
)

var errClosedDown = fmt.Errorf("tcp: post: %w (closed)", fabric.ErrDown)

// NewEndpoint implements fabric.Link. An endpoint takes 64 KiB of buffers and, for each
// work request of its depth, 64 bytes of slot, 64 of SGEs (16 KiB at least) and 256 for
// inline payload, which is accessed only when the socket is full.
func (l *link) NewEndpoint(o fabric.EndpointOptions) (fabric.Endpoint, error) {
	depth := o.Depth
	depth = cmp.Or(depth, fabric.DefaultDepth)
	if depth < 0 || depth > maxDepth {
		return nil, fmt.Errorf("tcp: new endpoint: depth %d, allowed 1 to %d", o.Depth, maxDepth)
	}
	mem, err := offheap.Alloc(rxSize+stageSize+pow2(depth)*maxInline, offheap.Staging)
	if err != nil {
		return nil, fmt.Errorf("tcp: new endpoint: %w", err)
	}
	e := &endpoint{l: l, id: o.ID, mem: mem, sock: socket{fd: -1}}
	e.connector.init(l, o.PeerTimeout)
	e.comps.init(o.ID, depth, &l.ready)
	e.lanes = lanes{mem: &l.memory, own: &e.req.pieces}
	e.out = outgoing{mem: &l.memory, own: &e.req.pieces, sock: &e.sock, chunk: maxAccess}
	e.req = requester{mem: &l.memory, in: &e.in.incoming, out: &e.out, lanes: &e.lanes, comps: &e.comps}
	e.resp = responder{mem: &l.memory, in: &e.in.incoming, out: &e.out, lanes: &e.lanes, comps: &e.comps}
	e.in = receiver{req: &e.req, resp: &e.resp, comps: &e.comps, incoming: incoming{sock: &e.sock}}
	e.bulk = laneReceiver{lanes: &e.lanes, in: &e.in.incoming, req: &e.req, resp: &e.resp}
	e.in.buf, mem = mem[:rxSize:rxSize], mem[rxSize:]
	e.out.stage, mem = mem[:stageSize:stageSize], mem[stageSize:]
	e.req.init(depth, mem)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed.Load() {
		return nil, errors.Join(fmt.Errorf("tcp: new endpoint: link %w", fabric.ErrClosed), offheap.Free(e.mem, offheap.Staging))
	}
	l.all[e] = struct{}{}
	l.byNonce[e.nonce] = e
	return e, nil
}

// Post implements fabric.Endpoint.
// Hot path.
func (e *endpoint) Post(wrs []fabric.WR) (int, error) {
	if s := e.state.Load(); s != epUp {
		return 0, postErr(s)
	}
	if !e.adopted {
		e.l.adopt()
		if e.state.Load() != epUp {
			return 0, fabric.ErrDown
		}
	}
	var err error
	i, bad, before := 0, false, e.req.tail
	for i < len(wrs) {
		w := &wrs[i]
		why := softlink.CheckShape(w, &linkCaps)
		if why == "" && len(w.Local) > maxPieces {
			why = "more than 2^20 local pieces"
		}
		if why != "" {
			err = &fabric.WRError{Index: i, Op: w.Op, Reason: why}
			break
		}
		s := e.req.take(w)
		if s == nil {
			break
		}
		bad = bad || s.status != fabric.StatusOK
		i++
	}
	if !e.sock.blocked {
		e.pump()
	}
	e.pumpLanes()
	if e.lanes.canSend() && !e.req.largeBefore(before) {
		e.pumpAlone()
	}
	if bad {
		e.failed(e.req.retire())
	}
	if len(e.l.active) > e.l.direct {
		e.deferRest()
	}
	return i, err
}

func postErr(state uint32) error {
	switch state {
	case epDown:
		return fabric.ErrDown
	case epClosed:
		return errClosedDown
	}
	return fabric.ErrNotConnected
}

// Distance implements fabric.Distant.
func (e *endpoint) Distance() fabric.Distance {
	return e.distance
}

// Err implements fabric.Endpoint.
func (e *endpoint) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state.Load() == epUp {
		return nil
	}
	return e.err
}

// Close implements fabric.Endpoint. Acknowledgements and replies that are due are sent if
// the socket takes them at once.
func (e *endpoint) Close() error {
	e.mu.Lock()
	was := e.state.Load()
	if was == epClosed {
		e.mu.Unlock()
		return nil
	}
	e.state.Store(epClosed)
	if e.err == nil {
		e.err = fmt.Errorf("tcp: endpoint %w", fabric.ErrClosed)
	}
	cancel, j := e.cancel, e.remade
	e.remade = nil
	e.mu.Unlock()
	closeJoint(j)
	if cancel != nil {
		cancel()
	}
	e.dropParked()
	if was == epUp {
		e.resp.refused = true // send no more requests
		if e.out.acks.now = e.out.acks.want; e.sock.open() {
			e.pump()
		}
		e.req.flush(fabric.StatusFlushed)
	}
	if !e.draining {
		e.hangUp()
		e.release()
	}
	return nil
}
