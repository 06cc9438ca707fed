//go:build linux || darwin || freebsd

package tcp

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
)

// minCheck and maxCheck bound the time between two checks of a socket, a sixteenth of
// PeerTimeout.
const minCheck, maxCheck = 5 * time.Millisecond, 125 * time.Millisecond

// watchSilence checks the sockets of all endpoints until ctx ends. It sleeps while there
// are none.
func watchSilence(ctx context.Context, l *link) {
	defer l.wg.Done()
	if !checksSilence {
		return
	}
	tick := time.NewTimer(maxCheck)
	defer tick.Stop()
	for {
		next := endSilent(l)
		if next == 0 {
			tick.Stop()
		} else {
			tick.Reset(next)
		}
		select {
		case <-ctx.Done():
			return
		case <-l.met:
		case <-tick.C:
		}
	}
}

// endSilent ends the connections of endpoints whose peer is silent, and returns the time
// until the next call, 0 if there is no endpoint.
func endSilent(l *link) (next time.Duration) {
	l.mu.Lock()
	eps := make([]*endpoint, 0, len(l.all))
	for e := range l.all {
		if e.state.Load() == epUp {
			eps = append(eps, e)
		}
	}
	l.mu.Unlock()
	for _, e := range eps {
		if endIfSilent(e, time.Now()) {
			continue
		}
		check := min(max(e.peerTimeout/16, minCheck), maxCheck)
		if next == 0 || check < next {
			next = check
		}
	}
	return next
}

// endIfSilent gives e's connections up if its peer's host is silent on any of them. Peers on this host
// are not checked: their host is alive while this process is, and its kernel closes the descriptors
// of ended processes; a late answer only shows that it is busy.
func endIfSilent(e *endpoint, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state.Load() != epUp || !e.sock.open() || e.path.class == ClassHost {
		return true
	}
	silent := e.sock.silent(now, e.peerTimeout)
	for i := range e.lanes.all {
		silent = e.lanes.all[i].silent(now, e.peerTimeout) || silent
	}
	if silent {
		giveUp(e, fmt.Errorf("tcp: %w: its host has acknowledged nothing for %v", fabric.ErrPeerGone, e.peerTimeout))
	}
	return silent
}

// giveUp shuts e's connections down, all of them: the owner may be reading the first one only, or the
// lanes only (incoming.held). It detects the end, and Err has the reason. e.mu is held.
func giveUp(e *endpoint, why error) {
	if e.err == nil {
		e.err = why
	}
	_ = unix.Shutdown(e.sock.fd, unix.SHUT_RDWR)
	for i := range e.lanes.all {
		_ = unix.Shutdown(e.lanes.all[i].fd, unix.SHUT_RDWR)
	}
}
