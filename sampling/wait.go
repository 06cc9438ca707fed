package sampling

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/event"
)

// poll takes completions and counts those of this session. Short.
func (s *Session) poll() (n int, err error) {
	if s.broken != nil {
		return 0, s.broken
	}
	k := s.link.Poll(s.cs[:])
	for i := range s.cs[:k] {
		c := &s.cs[i]
		switch {
		case c.EP != s.opt.EP:
			if s.opt.Other != nil {
				s.opt.Other(c)
			}
		case c.Status != fabric.StatusOK || c.Op == fabric.OpDown:
			if s.broken == nil { // the first says why
				s.broken = s.reason(c)
			}
		case c.Op != fabric.OpNotify:
			s.acked++
			n++
		}
	}
	return n, s.broken
}

// reason turns a failed completion into an error.
func (s *Session) reason(c *fabric.Completion) error {
	if c.Op == fabric.OpDown {
		if err := s.ep.Err(); err != nil {
			return err
		}
		return &fabric.OpError{Op: c.Op, Status: fabric.StatusPeerGone, Endpoint: c.EP, Vendor: c.Vendor}
	}
	return c.Err()
}

// begin starts a wait that may last the step time-out and d more.
func (s *Session) begin(d time.Duration) {
	s.spin.Reset()
	s.looks, s.waits = 0, 0
	s.deadline = s.now() + int64(s.opt.StepTimeout+d)
}

// rest waits a moment after a fruitless look; it fails when the wait has lasted
// too long. Short until it yields.
func (s *Session) rest() error {
	if s.opt.pause != nil {
		s.opt.pause()
		return s.late()
	}
	if s.opt.Locked {
		return s.restLocked()
	}
	if y := s.spin.Wait(); y&63 == 1 {
		return s.late()
	}
	return nil
}

// restLocked is rest for a goroutine that is locked to its thread: the same
// steps as cpu.Spinner's, without a turn for other goroutines. Short.
func (s *Session) restLocked() error {
	const polls, pauses = 64, 64 + 256
	s.waits++
	switch {
	case severalCPUs && s.waits <= polls:
		return nil
	case severalCPUs && s.waits <= pauses:
		cpu.Pause()
		return nil
	}
	cpu.Yield()
	if s.waits&63 == 1 {
		return s.late()
	}
	return nil
}

var severalCPUs = runtime.NumCPU() > 1

// late is the slow part of rest.
func (s *Session) late() error {
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	if s.now() > s.deadline {
		return ErrTimeout
	}
	return nil
}

// look is a fruitless look at memory that the peer writes: it lets the link
// progress, seldom where the link does not need this side's polls. Short.
func (s *Session) look() error {
	s.looks++
	if s.caps.TargetProgress || s.looks&15 == 0 || s.opt.pause != nil {
		if _, err := s.poll(); err != nil {
			return err
		}
	}
	return s.rest()
}

// napTime is how long this side sleeps while the peer measures what needs
// nobody here.
const napTime = 200 * time.Microsecond

// nap sleeps for a moment, out of the way of the peer's measurement. Where a
// plain write would wake, and the peer would pay for waking, nothing is armed.
func (s *Session) nap() error {
	if err := s.late(); err != nil {
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
	ok, err := s.link.Arm()
	if err == nil && ok {
		_, err = event.Wait(s.link.FD(), time.Millisecond)
	}
	s.link.Disarm()
	return err
}

// post hands over all of wrs, of which signalled ask for a completion. Short.
func (s *Session) post(wrs []fabric.WR, signalled int) error {
	s.sent += uint64(signalled)
	s.posts += len(wrs)
	n, err := s.ep.Post(wrs)
	if err == nil && n == len(wrs) {
		return nil
	}
	return s.postRest(wrs[n:], err)
}

// postRest is post where the queue was full.
func (s *Session) postRest(wrs []fabric.WR, err error) error {
	for s.begin(0); ; {
		if err != nil {
			return s.because(err)
		}
		if len(wrs) == 0 {
			return nil
		}
		if _, err = s.poll(); err == nil {
			err = s.rest()
		}
		if err == nil {
			var n int
			n, err = s.ep.Post(wrs)
			wrs = wrs[n:]
		}
	}
}

// because prefers the reason why an endpoint is down over the fact.
func (s *Session) because(err error) error {
	if why := s.ep.Err(); why != nil && errors.Is(err, fabric.ErrDown) {
		return fmt.Errorf("%w: %w", fabric.ErrDown, why)
	}
	return err
}

// drain waits until every signalled request has completed. Short.
func (s *Session) drain() error {
	if s.acked == s.sent {
		return nil
	}
	if s.opt.pause == nil { // mostly done at once: spare the clock
		for range 64 {
			if _, err := s.poll(); err != nil {
				return err
			}
			if s.acked == s.sent {
				return nil
			}
		}
	}
	for s.begin(0); s.acked != s.sent; {
		n, err := s.poll()
		if err == nil && n == 0 {
			err = s.rest()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// write is a request that puts n bytes at off of this region to offset to of
// the peer's; inline where the link can.
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
