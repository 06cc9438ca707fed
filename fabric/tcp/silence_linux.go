package tcp

import (
	"time"

	"golang.org/x/sys/unix"
)

// Whether a peer's host is there is told by its kernel's acknowledgements, which
// come whether the process takes anything or not: a connection is given up when
// something waits for one and none has come for PeerTimeout. The kernel's own
// limit, TCP_USER_TIMEOUT, would do that too, but also ends connections whose
// window stays closed, however often that is acknowledged: those of processes that
// are stopped.

// checksSilence says that it is this package that ends connections with silent hosts.
const checksSilence = true

// maxProbe is at most the time between two probes of a window that stays closed,
// where the kernel can be told (since Linux 6.15); else it doubles up to 2 minutes.
const maxProbe = time.Second

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

// silence tracks for how long a peer's host has acknowledged nothing on one socket.
type silence struct {
	waiting bool
	since   time.Time // if waiting: something sent was unanswered at each check since then
	acked   time.Time // when something was acknowledged last, as of the last check
	base    uint32    // what sent returned then
}

// over reports whether data or probes sent on fd are unanswered, and nothing has been
// acknowledged for limit. A kernel sends a keepalive probe to an idle peer after
// keepIdle, retransmits to one that drops data for lack of room, and probes a closed
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
