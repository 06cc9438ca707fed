package sampling

import (
	"time"

	"github.com/seed33544411/rma/fabric"
)

// begin starts a wait that may last for the step time-out plus d.
func (s *Session) begin(d time.Duration) {
	s.p.Limit = s.opt.StepTimeout + d
	s.p.Begin()
}

// napTime is how long this side sleeps while the peer measures something that does not
// involve it.
const napTime = 200 * time.Microsecond

// backgroundSpin is how long a wait of a measurement in the background spins and yields
// before it sleeps: longer than the round trips that sleeping would falsify.
const backgroundSpin = 200 * time.Microsecond

// nap sleeps for a short time in order not to disturb the peer's measurement. If a plain
// write would wake this side, and the peer would pay for that, nothing is armed.
func (s *Session) nap() error {
	if err := s.p.Late(); err != nil {
		return err
	}
	switch {
	case s.opt.pause != nil:
		s.opt.pause()
		return nil
	case s.caps.WakesOnWrite:
		time.Sleep(napTime)
		return nil
	}
	return s.p.Sleep(time.Millisecond)
}

// post posts all of wrs. signalled is the number of requests with a completion.
// Hot path.
func (s *Session) post(wrs []fabric.WR, signalled int) error {
	s.posts += len(wrs)
	return s.p.Post(wrs, signalled)
}

// drain waits until every signalled request has completed.
func (s *Session) drain() error {
	s.p.Limit = s.opt.StepTimeout
	return s.p.Drain()
}

// write returns a request that writes n bytes at off of this region to offset to of the
// peer's, inline if the link supports it.
func (s *Session) write(off, n, to int) fabric.WR {
	w := fabric.WR{
		Op: fabric.OpWrite, RemoteAddr: s.peer.Region.Addr + uint64(to), RKey: s.peer.Region.RKey,
		Local: []fabric.SGE{fabric.NewSGE(s.mem[off:off+n], s.reg.LKey())},
	}
	if n <= s.caps.MaxInline {
		w.Flags |= fabric.FlagInline
	}
	return w
}
