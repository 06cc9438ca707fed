//go:build linux || darwin || freebsd

package tcp

import (
	"fmt"

	"github.com/seed33544411/rma/fabric"
)

// watch is what the poller reports of a socket.
type watch uint8

const (
	watchIn  watch = 1 << iota // data, or its end
	watchOut                   // room
)

// seat is an endpoint's place in link.tab, by which the poller knows its sockets, and
// what tells its users apart.
type seat struct {
	idx int
	gen uint32
}

// unwatchAfter is how many receives without sleeping take the sockets that Poll
// reads itself out of the poller. A socket in it has every segment that arrives
// walk through the poller, and through those that the poller's own descriptor is in:
// 0.15 µs and more. Putting it back before sleeping takes about 1 µs, so whoever
// sleeps between a few messages leaves it in.
const unwatchAfter = 16

// An endpoint that alone has received for hotAfter times is hot: Poll reads its
// socket itself, however many there are, and looks at the others every hotLooks
// times only. Who exchanges messages with one peer does not pay for having many, and
// the others' messages wait 1 µs longer at the start of theirs.
const (
	hotAfter = unwatchAfter
	hotLooks = 4
)

// wanted is what e's socket is watched for where Poll asks the poller.
func (e *endpoint) wanted() (w watch) {
	// What a held socket has must wait.
	if (e.l.last != e || e.l.streak <= hotAfter) && !(e.rx.held && e.bulk.on) {
		w = watchIn
	}
	if e.sock.blocked {
		w |= watchOut
	}
	return w
}

// count counts a receive of e. Class: short.
func (l *link) count(e *endpoint) {
	l.received++
	if l.last == e {
		l.streak++
		return
	}
	cool := l.last
	if l.streak <= hotAfter || len(l.active) <= l.direct {
		cool = nil
	}
	l.last, l.streak = e, 1
	if cool != nil {
		cool.mustWatch(cool.wanted())
	}
}

// watch has the poller report want of e's socket.
func (e *endpoint) watch(want watch) error {
	if err := e.sock.watch(&e.l.poller, e.seat, want); err != nil {
		return fmt.Errorf("tcp: %w", err)
	}
	return nil
}

// watchLanes has the poller report what the lanes are waiting for. They are in it
// only while that is anything.
func (e *endpoint) watchLanes() {
	b := &e.bulk
	for i := range b.lanes {
		ln := &b.lanes[i]
		if err := ln.watch(&e.l.poller, e.seat, b.wanted(ln)); err != nil {
			e.laneFailed(ln, err)
			return
		}
	}
}

// unwatchLanes takes them out of the poller until the next Arm.
func (e *endpoint) unwatchLanes() {
	for i := range e.bulk.lanes {
		_ = e.bulk.lanes[i].watch(&e.l.poller, e.seat, 0)
	}
}

// mustWatch is watch for an endpoint that is of no use otherwise.
func (e *endpoint) mustWatch(want watch) {
	if err := e.watch(want); err != nil {
		e.fail(fabric.StatusPeerGone, err)
	}
}

// unwatch takes all sockets out of the poller until the next Arm. Poll must be
// reading every one itself.
func (l *link) unwatch() {
	l.received = 0
	for _, e := range l.active {
		_ = e.watch(0) // a socket that stays in costs time, no more
		e.unwatchLanes()
	}
}
