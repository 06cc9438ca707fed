//go:build linux || darwin || freebsd

package tcp

import (
	"fmt"

	"github.com/seed33544411/rma/fabric"
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

var _ fabric.Serving = (*link)(nil)

// Served implements fabric.Serving.
// Hot path.
func (l *link) Served() uint32 { return l.receives }

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

// unwatch removes all sockets from the poller until the next Arm. Poll must be reading
// every socket itself.
func (l *link) unwatch() {
	l.received = 0
	for _, e := range l.active {
		_ = e.sock.watch(0) // a socket that stays in only costs time
		e.lanes.unwatch()
	}
}

// adopt adds newly connected endpoints to the owner's lists.
// Setup path.
func (l *link) adopt() {
	resumeAll(l) // what it resumes enters, and is adopted below
	first := len(l.active)
	l.mu.Lock()
	if len(l.resumed) == 0 {
		l.waking.Clear() // not before resumeAll, which sets it
	}
	for _, e := range l.joined {
		if e.adopted || !e.sock.open() {
			continue
		}
		idx := -1
		for i, o := range l.tab {
			if o == nil {
				idx = i
				break
			}
		}
		if idx < 0 {
			idx = len(l.tab)
			l.tab = append(l.tab, nil)
		}
		l.gen++
		e.adopted = true
		e.sit(seat{idx, l.gen})
		l.tab[idx] = e
		l.active = append(l.active, e)
		l.pairUp(e)
	}
	l.joined = l.joined[:0]
	l.fresh.Store(int32(len(l.resumed)))
	l.mu.Unlock() // an endpoint that cannot be watched goes down, which locks it
	for i := len(l.active) - 1; i >= first; i-- {
		l.active[i].mustWatch(watchIn)
	}
	if n := len(l.active); cap(l.deferred) < n {
		l.deferred = append(make([]*endpoint, 0, 2*n), l.deferred...)
		l.spare = make([]*endpoint, 0, 2*n)
	}
	l.received, l.streak = 0, 0
	if len(l.active) > l.direct { // from now on epoll must watch for all events that they wait for
		for i := len(l.active) - 1; i >= 0; i-- {
			if i < len(l.active) {
				l.active[i].deferRest()
			}
		}
	}
}

// pairUp finds the other end of e on this link: an endpoint that was connected with e's
// address, as e was with its address. l.mu is held.
func (l *link) pairUp(e *endpoint) {
	for x := range l.all {
		if x != e && x.state.Load() == epUp && x.nonce == e.with && x.with == e.nonce {
			e.twin, x.twin = x, e
		}
	}
}
