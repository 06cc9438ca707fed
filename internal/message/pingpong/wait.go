package pingpong

import (
	"context"
	"fmt"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
)

// progress polls the link and drives the channel.
// Hot path.
func (s *Side) progress() error {
	if s.down != nil {
		return s.down
	}
	n := s.link.Poll(s.cs[:])
	for i := range s.cs[:n] {
		c := &s.cs[i]
		if s.foreign(c) {
			continue
		}
		if c.Op == fabric.OpDown {
			if err := s.ep.Err(); err != nil {
				return err
			}
			return fmt.Errorf("%w: %v", fabric.ErrDown, c.Status)
		}
		if !s.ch.OnCompletion(c) {
			for _, o := range s.group {
				o.ch.OnCompletion(c) // a channel ignores completions of others
			}
		}
	}
	for _, o := range s.group {
		if o != s {
			if _, _, err := o.ch.Progress(); err != nil {
				return err
			}
		}
	}
	_, _, err := s.ch.Progress()
	return err
}

// foreign passes completions of other endpoints to Options.Other.
func (s *Side) foreign(c *fabric.Completion) bool {
	if s.opt.Other == nil || c.EP == s.opt.EP {
		return false
	}
	s.opt.Other(c)
	return true
}

// wait is one wait at a time for the peer, which spins until something has been counted.
type wait struct {
	spin   cpu.Spinner
	pause  func(n int) // Options.Wait
	misses int
	since  int64 // ticks at the first check of this wait in late
	limit  int64 // ticks
}

func newWait(o *Options) wait {
	return wait{spin: cpu.Spinner{Apart: true}, pause: o.Wait, limit: int64(float64(o.Stall) / cpu.NsPerTick())}
}

func (w *wait) begin() {
	w.spin.Reset()
	w.misses, w.since = 0, 0
}

// until calls progress until k has counted to want.
// Hot path.
func (w *wait) until(ctx context.Context, k *counter, want int, progress func() error) error {
	w.begin()
	for have := k.n; k.n < want; {
		if err := progress(); err != nil {
			return err
		}
		if k.n != have {
			have = k.n
			w.begin()
			continue
		}
		if k.err != nil {
			break
		}
		if w.misses++; w.pause != nil {
			w.pause(w.misses)
		} else {
			w.spin.Wait()
		}
		if w.misses&1023 == 0 {
			if err := w.late(ctx); err != nil {
				return err
			}
		}
	}
	return k.err
}

// late returns an error if ctx has ended or the wait has stalled.
func (w *wait) late(ctx context.Context) error {
	now := cpu.Ticks()
	if w.since == 0 {
		w.since = now
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if took := now - w.since; took > w.limit {
		return fmt.Errorf("%w for %v", ErrStalled, cpu.Duration(took).Round(time.Millisecond))
	}
	return nil
}
