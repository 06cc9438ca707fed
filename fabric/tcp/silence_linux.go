package tcp

import (
	"time"

	"golang.org/x/sys/unix"
)

// The acknowledgements of a host's kernel show that the host is alive; they are sent
// whether or not the process receives. A connection is given up when something waits for an
// acknowledgement and none has arrived for PeerTimeout. The kernel's own limit,
// TCP_USER_TIMEOUT, would do the same, but also ends connections whose window stays closed
// although probes are acknowledged: those of stopped processes.

// checksSilence: this package, not the system, ends connections with silent hosts.
const checksSilence = true

// maxProbe bounds the interval between two probes of a window that stays closed, if the
// kernel supports that (since Linux 6.15); otherwise it doubles up to 2 minutes.
const maxProbe = time.Second

// minUnanswered is the least time allowed for an acknowledgement: one of data may be
// delayed by 200 ms.
const minUnanswered = 300 * time.Millisecond

// ackGrain is the resolution of the time of the last acknowledgement that the kernel
// reports.
const ackGrain = 10 * time.Millisecond

// boundSilence sets the socket options that bound the silence of a peer's host.
func boundSilence(fd int, _ time.Duration) error {
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_RTO_MAX_MS, int(maxProbe.Milliseconds()))
	return nil
}

// silence tracks for how long a peer's host has acknowledged nothing on one socket.
type silence struct {
	waiting bool
	since   time.Time // if waiting: data was unanswered at each check since then
	acked   time.Time // time of the last acknowledgement, or a little later
	counted time.Time // that of the last one that another counted
	base    uint32    // result of sent at that time
}

// another reports that an acknowledgement which came between early and late, as a check sees it, is
// not the last one that was seen. The kernel's clock is coarse, and a check may wait for a processor: of one
// acknowledgement it sees now an earlier time, now a later one, from which silence would begin again.
// One that follows within ackGrain is taken for the same, but remembered, so that the next check does not
// see a third one; of many that follow each other so, some count.
func (h *silence) another(early, late time.Time) bool {
	switch {
	case early.After(h.acked.Add(ackGrain)), early.After(h.counted.Add(2 * ackGrain)):
		h.acked, h.counted = late, late
		return true
	case early.After(h.acked):
		h.acked = early
	}
	return false
}

// over reports whether data or probes sent on fd are unanswered, and nothing has been
// acknowledged for limit. A kernel sends a keepalive probe to an idle peer after keepIdle,
// retransmits to a peer that drops data for lack of room, and probes a closed window; the
// peer's kernel answers all of these, except a probe within half a second of another. If
// the process has slept between two checks, that time does not count as silence.
func (h *silence) over(fd int, now time.Time, limit time.Duration) bool {
	i, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return false
	}
	silence := time.Duration(i.Last_ack_recv) * time.Millisecond
	if h.another(now.Add(-silence), time.Now().Add(-silence)) {
		h.waiting, h.base = false, sent(i)
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
		return false // the probe may not be answered, or not be overdue yet
	}
	unanswered := limit // of data: from when it was sent, however long the connection was idle before
	if i.Unacked == 0 {
		unanswered = limit / 2 // of probes, which begin after some silence
	}
	return waiting && silence >= limit && now.Sub(h.since) >= max(unanswered, minUnanswered)
}

// sent returns a number that changes whenever data is sent or should be sent again: without
// a route that is counted and not done.
func sent(i *unix.TCPInfo) uint32 { return i.Data_segs_out + uint32(i.Retransmits) }
