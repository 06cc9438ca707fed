//go:build linux || darwin || freebsd

package tcp

import (
	"fmt"

	"github.com/seed33544411/rma/fabric"
)

// unwatchAfter is how many receives without sleeping take the sockets that Poll
// reads itself out of the poller. A socket in it has every segment that arrives
// walk through the poller, and through those that the poller's own descriptor is in:
// 0.15 µs and more. Putting it back before sleeping takes about 1 µs, so whoever
// sleeps between a few messages leaves it in.
const unwatchAfter = 16

// An endpoint that alone has received for hotAfter times is hot: Poll reads its
// socket itself, however many there are, and the others every hotPolls
// times only. An exchange with one peer does not cost more where there are many, and
// the first message of another waits 1 µs longer.
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

// pollMany asks the system which sockets have something.
func (l *link) pollMany() {
	// What earlier polls left undone comes first: it is due by now.
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
		// Its place may have changed hands since.
		if e := l.tab[at.idx]; e != nil && e.sock.seat == at {
			e.progress()
			e.deferRest()
		}
	}
}

// Arm implements fabric.Link. The descriptor is level-triggered and covers all
// sockets, so only work already inside this process has to be settled first:
// acknowledgements held back go out now.
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

// unwatch takes all sockets out of the poller until the next Arm. Poll must be
// reading every one itself.
func (l *link) unwatch() {
	l.received = 0
	for _, e := range l.active {
		_ = e.sock.watch(0) // a socket that stays in costs time, no more
		e.lanes.unwatch()
	}
}
