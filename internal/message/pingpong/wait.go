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

// until makes progress until k has counted to want.
// Hot path.
func (s *Side) until(ctx context.Context, k *counter, want int) error {
	s.spin.Reset()
	s.misses, s.since = 0, 0
	have := k.n
	for k.n < want {
		if err := s.progress(); err != nil {
			return err
		}
		if k.n != have {
			have, s.misses, s.since = k.n, 0, 0
			s.spin.Reset()
			continue
		}
		if s.misses++; s.opt.Wait != nil {
			s.opt.Wait(s.misses)
		} else {
			s.spin.Wait()
		}
		if s.misses&1023 == 0 {
			if err := s.long(ctx); err != nil {
				return err
			}
		}
	}
	return k.err
}

// long returns an error if ctx has ended or the wait has stalled.
func (s *Side) long(ctx context.Context) error {
	now := cpu.Ticks()
	if s.since == 0 {
		s.since = now
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if took := now - s.since; took > s.limit {
		return fmt.Errorf("%w for %v", ErrStalled, cpu.Duration(took).Round(time.Millisecond))
	}
	return nil
}
