//go:build linux || darwin || freebsd

package tcp

import "github.com/seed33544411/rma/fabric"

// directMax is up to how many endpoints Poll reads every socket itself. A
// receive that finds nothing costs about as much as asking epoll, which then
// needs the receive as well where there is something: reading directly is the
// faster answer for one or two sockets and loses from about three.
const directMax = 2

// Poll implements fabric.Link. Class: short.
func (l *link) Poll(cs []fabric.Completion) int {
	n := 0
	if l.ready.head != nil {
		if n = l.deliver(cs); n == len(cs) {
			return n
		}
	}
	if l.fresh.Load() != 0 {
		l.adopt()
	}
	l.looks++
	switch {
	case l.streak > hotAfter && l.looks%hotLooks != 0:
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
	if l.ready.head != nil {
		n += l.deliver(cs[n:])
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
		if e := l.poller.at(i, l.tab); e != nil {
			e.progress()
			e.deferRest()
		}
	}
}

// deferRest notes that e needs a look at the next poll even if its socket says
// nothing, and has the system say when a full socket has room again.
func (e *endpoint) deferRest() {
	if !e.sock.open() {
		return
	}
	e.mustWatch(e.wanted())
	e.watchLanes()
	if e.sock.open() && e.unfinished() && !e.inDeferred {
		e.inDeferred = true
		e.l.deferred = append(e.l.deferred, e)
	}
}

// unfinished reports work that no socket event will announce.
func (e *endpoint) unfinished() bool {
	return e.ackWant || e.bulk.err != nil || e.bulk.again || e.bulk.canSend() || e.rx.paused || !e.rx.held && e.sock.more() || e.draining || e.tx.dead || e.refused || !e.sock.blocked && e.txPending()
}

// Arm implements fabric.Link. The descriptor is level-triggered and covers all
// sockets, so that only what is already inside this process has to be settled
// first: acknowledgements held back go out now.
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
		if e.ackWant {
			e.ackNow = true
			e.pump()
		}
		if e.refused {
			e.progress()
		}
		if !e.sock.open() {
			continue
		}
		if err := e.watch(e.wanted()); err != nil {
			return false, err
		}
		e.watchLanes()
		if e.rx.paused || !e.rx.held && e.sock.more() || e.tx.dead || e.bulk.err != nil || e.bulk.again || e.bulk.canSend() || !e.sock.blocked && e.canSend() {
			sleep = false
		}
	}
	return sleep && l.ready.head == nil, nil
}

// Disarm implements fabric.Link.
func (l *link) Disarm() {}

// readyList is the endpoints with completions to deliver, in order of arrival.
type readyList struct {
	head, tail *endpoint
}

// push queues c for delivery. The queue has room for all that can come: see
// newEndpoint.
func (e *endpoint) push(c fabric.Completion) {
	e.comps.Push(c)
	if e.inReady {
		return
	}
	e.inReady = true
	e.next = nil
	if r := &e.l.ready; r.tail == nil {
		r.head, r.tail = e, e
	} else {
		r.tail.next = e
		r.tail = e
	}
}

// deliver moves completions to cs.
func (l *link) deliver(cs []fabric.Completion) int {
	n := 0
	for l.ready.head != nil && n < len(cs) {
		e := l.ready.head
		k := e.comps.Pop(cs[n:])
		for i := range cs[n : n+k] {
			switch op := cs[n+i].Op; {
			case op < fabric.OpNotify:
				e.sq.owed--
			case op == fabric.OpNotify:
				e.notes--
			}
		}
		n += k
		if e.comps.Len() > 0 {
			break
		}
		if l.ready.head = e.next; e.next == nil {
			l.ready.tail = nil
		}
		e.inReady, e.next = false, nil
	}
	return n
}
