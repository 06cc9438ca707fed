//go:build linux || darwin || freebsd

package tcp

import (
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
	hotPolls = 4
)

// Poll implements fabric.Link.
// Hot path.
func (l *link) Poll(cs []fabric.Completion) int {
	n := 0
	if !l.ready.empty() {
		if n = l.ready.deliver(cs); n == len(cs) {
			return n
		}
	}
	if l.fresh.Load() != 0 {
		l.adopt()
	}
	l.polls++
	switch {
	case l.streak > hotAfter && l.polls%hotPolls != 0:
		e := l.last
		e.progress()
		if len(l.active) > l.direct {
			e.deferRest()
		}
	case len(l.active) <= l.direct:
		// Backwards: an endpoint that goes down is replaced by the last.
		for i := len(l.active) - 1; i >= 0; i-- {
			if i < len(l.active) {
				l.active[i].progress()
			}
		}
		if l.received > unwatchAfter {
			l.unwatch()
		}
	default:
		l.pollMany()
	}
	if !l.ready.empty() {
		n += l.ready.deliver(cs[n:])
	}
	return n
}

// pollMany asks the system which sockets are ready.
func (l *link) pollMany() {
	// Work that earlier polls deferred comes first: it is due now.
	todo := l.deferred
	l.deferred = l.spare[:0]
	for _, e := range todo {
		e.inDeferred = false
		if e.sock.open() {
			e.progress()
			e.deferRest()
		}
	}
	l.spare = todo[:0]
	if l.closed.Load() {
		return
	}
	for i := range l.poller.ready() {
		at := l.poller.at(i)
		if at.idx < 0 || at.idx >= len(l.tab) {
			continue
		}
		// The place may have another user meanwhile.
		if e := l.tab[at.idx]; e != nil && e.sock.seat == at {
			e.progress()
			e.deferRest()
		}
	}
}

// Arm implements fabric.Link. The descriptor is level-triggered and covers all sockets, so
// only work inside this process must be done first: delayed acknowledgements are sent now.
func (l *link) Arm() (bool, error) {
	if l.closed.Load() {
		return false, fabric.ErrClosed
	}
	l.received, l.streak = 0, 0
	if l.fresh.Load() != 0 {
		l.adopt()
	}
	sleep := true
	for i := len(l.active) - 1; i >= 0; i-- {
		if i >= len(l.active) {
			continue
		}
		e := l.active[i]
		if e.out.acks.want {
			e.out.acks.now = true
			e.pump()
		}
		if e.resp.refused {
			e.progress()
		}
		if !e.sock.open() {
			continue
		}
		if err := e.sock.watch(e.wanted()); err != nil {
			return false, fmt.Errorf("tcp: %w", err)
		}
		e.lanes.watch()
		if e.buffered() || !e.sock.blocked && e.canSend() {
			sleep = false
		}
	}
	return sleep && l.ready.empty(), nil
}

// Disarm implements fabric.Link.
func (l *link) Disarm() {}

// count counts n receives of e.
// Hot path.
func (l *link) count(e *endpoint, n int) {
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

// unwatch removes all sockets from the poller until the next Arm. Poll must be reading
// every socket itself.
func (l *link) unwatch() {
	l.received = 0
	for _, e := range l.active {
		_ = e.sock.watch(0) // a socket that stays in only costs time
		e.lanes.unwatch()
	}
}
