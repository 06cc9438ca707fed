//go:build linux || darwin || freebsd

package tcp

import (
	"errors"
	"fmt"

	"github.com/seed33544411/rma/fabric"
)

// unwatchAfter is the number of receives without sleeping after which sockets that Poll
// reads itself are removed from the poller. For a socket in the poller, every arriving
// segment is processed by the poller, and by pollers that contain the poller's own
// descriptor: 0.15 µs and more. Adding it again before sleeping takes about 1 µs, so a
// process that sleeps after a few messages keeps it in.
const unwatchAfter = 16

// An endpoint is hot if it has made the last hotAfter receives: Poll then reads its socket
// itself, however many endpoints there are, and polls the others every hotPolls times only.
// An exchange with one peer does not cost more if there are many, and the first message of
// another waits 1 µs longer.
const (
	hotAfter = unwatchAfter
	hotPolls = 4 // see Poll
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
		if e.lost(e.bulk.receive()) {
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
	if e.resp.refused && e.out.idle() && e.resp.replies.empty() && e.lanes.idle() {
		if e.resumes {
			refusing(e)
		} else {
			e.endRefusal()
		}
	}
}

// receive processes the data of the first connection. It reports whether that was all.
func (e *endpoint) receive() bool {
	got, empty, f := e.in.receive()
	if got > 0 {
		e.count(got)
	}
	if f != nil {
		e.lost(f)
	}
	return empty
}

// ended takes the endpoint down if it has lost a lane or cannot send any longer. All data
// of the peer has been read by now.
func (e *endpoint) ended() bool {
	if f := e.lanes.lost(); f != nil {
		return e.lost(f)
	}
	if e.out.err != nil {
		return e.lost(&failure{fabric.StatusPeerGone, e.out.err, e.resumes || !errors.Is(e.out.err, errRegionClosed)})
	}
	return false
}

// lost is failed for failures of which some concern the connection alone: then the endpoint, which has
// no socket, continues on another one if it can.
func (e *endpoint) lost(f *failure) bool {
	return f != nil && f.lost && suspend(e, f.cause) || e.failed(f)
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

// pumpAlone lets the lanes send on, up to maxAccess bytes each, payload that no other is in
// flight with. The caller is likely to compute now: what is left waits for the progress
// goroutine, which needs a processor. In a stream of large payloads the rest is sent by later
// visits, between which small frames get their turn.
func (e *endpoint) pumpAlone() {
	size := e.lanes.tune.size(0)
	for n := size; n < maxAccess && e.lanes.canSend(); n += size {
		e.pumpLanes()
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
		e.failed(&failure{status: fabric.StatusPeerGone, cause: fmt.Errorf("tcp: %w", err)})
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

// count counts n receives of e.
// Hot path.
func (e *endpoint) count(n int) {
	l := e.l
	l.received += n
	if l.last == e {
		l.streak += uint32(n)
		return
	}
	cool := l.last
	if l.streak <= hotAfter || len(l.active) <= l.direct {
		cool = nil
	}
	l.last, l.streak = e, uint32(n)
	if cool != nil {
		cool.mustWatch(cool.wanted())
	}
}
