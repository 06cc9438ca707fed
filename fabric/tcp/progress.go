//go:build linux || darwin || freebsd

package tcp

import (
	"fmt"

	"github.com/seed33544411/rma/fabric"
)

// pumpBudget bounds the sends of one visit, so that one endpoint with an endless backlog
// does not delay the others.
const pumpBudget = 8

// progress serves one endpoint: received data, and data to send.
// Hot path.
func (e *endpoint) progress() {
	if e.draining {
		e.drain()
		return
	}
	empty := e.receive()
	if !e.sock.open() {
		return
	}
	e.out.acks.visit()
	if e.lanes.expected != 0 {
		if e.failed(e.bulk.receive()) {
			return
		}
		if e.in.held && !e.resp.laned.on {
			if empty = e.receive(); !e.sock.open() {
				return
			}
		}
	}
	if e.canSend() {
		e.pump()
	}
	e.pumpLanes()
	if empty && (e.lanes.err != nil || e.out.err != nil) && e.ended() {
		return
	}
	if e.resp.refused && e.out.idle() && e.resp.replies.empty() {
		e.endRefusal()
	}
}

// receive processes the data of the first connection. It reports whether that was all.
func (e *endpoint) receive() bool {
	got, empty, f := e.in.receive()
	if got > 0 {
		e.l.count(e, got)
	}
	if f != nil {
		e.failed(f)
	}
	return empty
}

// ended takes the endpoint down if it has lost a lane or cannot send any longer. All data
// of the peer has been read by now.
func (e *endpoint) ended() bool {
	if f := e.lanes.lost(); f != nil {
		return e.failed(f)
	}
	if e.out.err != nil {
		return e.failed(&failure{fabric.StatusPeerGone, e.out.err})
	}
	return false
}

// pending reports bytes or descriptors that could be sent.
func (e *endpoint) pending() bool {
	return !e.out.idle() || e.resp.ready() || e.out.acks.now || e.req.ping
}

// canSend reports whether a pump may have something to send.
func (e *endpoint) canSend() bool {
	return e.out.err == nil && (e.pending() || !e.resp.refused && e.req.ready())
}

// pump encodes the frames that are due and sends as much as the socket takes.
// Hot path.
func (e *endpoint) pump() {
	for range pumpBudget {
		e.fill()
		if e.out.empty() || e.out.err != nil || !e.out.send() {
			return
		}
	}
}

// fill encodes frames until the segments or the staging buffer are used up.
// Replies and requests take turns.
func (e *endpoint) fill() {
	for o := &e.out; o.roomy(); {
		if o.piece() {
			continue
		}
		own := !e.resp.refused && e.req.ready()
		switch {
		case e.resp.ready() && (!own || !e.turn):
			if !e.resp.put() {
				return
			}
			e.turn = true
		case own:
			if !e.req.put() {
				return
			}
			e.turn = false
		case o.acks.now || e.req.ping:
			if !o.ack(e.req.ping) {
				return
			}
			e.req.ping = false
		default:
			return
		}
	}
}

// pumpLanes lets every lane send.
func (e *endpoint) pumpLanes() {
	if e.lanes.idle() || e.out.err != nil {
		return
	}
	if err := e.lanes.send(); err != nil {
		e.out.err = err
	}
}

// wanted returns the events that e's socket is watched for if Poll uses the poller.
func (e *endpoint) wanted() (w watch) {
	// The data of a held socket must wait.
	if (e.l.last != e || e.l.streak <= hotAfter) && !(e.in.held && e.resp.laned.on) {
		w = watchIn
	}
	if e.sock.blocked {
		w |= watchOut
	}
	return w
}

// sit sets the place of e in the poller.
func (e *endpoint) sit(at seat) {
	e.sock.seat = at
	for i := range e.lanes.all {
		e.lanes.all[i].seat = at
	}
}

// mustWatch makes the poller report want of e's first connection, without which e cannot
// work.
func (e *endpoint) mustWatch(want watch) {
	if err := e.sock.watch(want); err != nil {
		e.failed(&failure{fabric.StatusPeerGone, fmt.Errorf("tcp: %w", err)})
	}
}

// deferRest schedules e for the next poll even without an event of its socket, and makes
// the system report when a full socket has room again.
func (e *endpoint) deferRest() {
	if !e.sock.open() {
		return
	}
	e.mustWatch(e.wanted())
	e.lanes.watch()
	if e.sock.open() && e.unfinished() && !e.inDeferred {
		e.inDeferred = true
		e.l.deferred = append(e.l.deferred, e)
	}
}

// unfinished reports work for which no socket event will occur.
func (e *endpoint) unfinished() bool {
	return e.buffered() || e.out.acks.want || e.draining || e.resp.refused || !e.sock.blocked && e.pending()
}

// buffered reports that bytes inside this process wait to be processed, or a failure to be
// reported.
func (e *endpoint) buffered() bool {
	return e.in.paused || !e.in.held && e.sock.more() || e.out.err != nil || e.lanes.pending()
}
