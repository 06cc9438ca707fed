package tcp

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
)

// Whether a peer's host is there is told by its kernel's acknowledgements, which
// come whether the process takes anything or not: a connection is given up when
// something waits for one and none has come for PeerTimeout. The kernel's own
// limit, TCP_USER_TIMEOUT, would do that too, but also ends connections whose
// window stays closed, however often that is acknowledged: those of processes that
// are stopped.

// maxProbe is at most the time between two probes of a window that stays closed,
// where the kernel can be told (since Linux 6.15); else it doubles up to 2 minutes.
const maxProbe = time.Second

// minCheck and maxCheck bound the time between two checks of a socket, a sixteenth of
// PeerTimeout.
const minCheck, maxCheck = 5 * time.Millisecond, 125 * time.Millisecond

// minUnanswered is how long an acknowledgement may take at least: one of data may be
// delayed by 200 ms.
const minUnanswered = 300 * time.Millisecond

// ackGrain is how exactly the kernel tells when it was acknowledged something.
const ackGrain = 10 * time.Millisecond

// boundSilence sets what bounds the silence of a peer's host.
func boundSilence(fd int, _ time.Duration) error {
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_RTO_MAX_MS, int(maxProbe.Milliseconds()))
	return nil
}

// silence is what is known of how long a peer's host has said nothing on one socket.
type silence struct {
	waiting bool
	since   time.Time // if waiting: something sent was unanswered at each check since then
	acked   time.Time // when something was acknowledged last, as of the last check
	base    uint32    // what sent returned then
}

// over reports whether what was sent on fd is unanswered, and nothing has been
// acknowledged for limit. A kernel sends a keepalive probe to an idle peer after
// keepIdle, retransmits to one that drops what it has no room for, and probes a closed
// window; the peer's answers all of these, but for a probe within half a second of
// another. A process that has slept between two checks takes nothing for silence that
// it has not seen.
func (h *silence) over(fd int, now time.Time, limit time.Duration) bool {
	i, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return false
	}
	silence := time.Duration(i.Last_ack_recv) * time.Millisecond
	if acked := now.Add(-silence); acked.After(h.acked.Add(ackGrain)) {
		h.waiting, h.acked, h.base = false, acked, sent(i)
	}
	waiting := i.Probes != 0
	switch {
	case i.Unacked != 0:
		waiting = waiting || i.Retransmits == 0 || sent(i) != h.base
	case i.Notsent_bytes == 0:
		waiting = waiting || silence > keepIdle(limit)+ackGrain
	}
	if waiting && !h.waiting {
		h.since = now
	}
	h.waiting = waiting
	if i.Probes == 1 && silence < 2*maxProbe || i.Unacked != 0 && i.Retransmits == 0 {
		return false // may be one that is not answered, or is not missed yet
	}
	unanswered := limit // of data: from when it was sent, however long nothing was said before
	if i.Unacked == 0 {
		unanswered = limit / 2 // of probes, which begin when all has been silent for a while
	}
	return waiting && silence >= limit && now.Sub(h.since) >= max(unanswered, minUnanswered)
}

// sent changes whenever data is sent, or was to be sent again: without a route that is
// counted and not done.
func sent(i *unix.TCPInfo) uint32 { return i.Data_segs_out + uint32(i.Retransmits) }

// watchSilence checks the sockets of all endpoints until ctx ends. It sleeps
// while there are none.
func watchSilence(ctx context.Context, l *link) {
	defer l.wg.Done()
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

// endSilent ends the connections of endpoints whose peer is silent, and
// returns when to do so again, 0 if there is none.
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
		if e.endIfSilent(time.Now()) {
			continue
		}
		check := min(max(e.peerTimeout/16, minCheck), maxCheck)
		if next == 0 || check < next {
			next = check
		}
	}
	return next
}

// endIfSilent shuts e's first connection down if its peer's host is silent on any:
// the owner finds it at its end, and the reason in Err. This host is there as long as
// this process is, and its kernel closes what a process leaves open; how late it
// answers tells nothing but how busy it is.
func (e *endpoint) endIfSilent(now time.Time) bool {
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
		if e.err == nil {
			e.err = fmt.Errorf("tcp: %w: its host has acknowledged nothing for %v", fabric.ErrPeerGone, e.peerTimeout)
		}
		_ = unix.Shutdown(e.sock.fd, unix.SHUT_RDWR) // nobody may poll the lanes
	}
	return silent
}
