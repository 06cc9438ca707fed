package pingpong

import (
	"bytes"
	"context"
	"fmt"

	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/logp"
)

// gap lies between the messages of a batch, so that no two touch; messages begin
// on a cache line.
const gap = 64

// Need returns the Options.Span that a batch of these sizes needs.
func Need(sizes []int) (n int) {
	for _, m := range sizes {
		n += (m+gap-1)&^(gap-1) + gap
	}
	return n
}

// Load sets the batch that Play plays, by the sizes of its messages. Both sides load the
// same one.
func (s *Side) Load(sizes []int) error {
	if n := Need(sizes); n > s.opt.Span || len(sizes) == 0 {
		return fmt.Errorf("%w: %d messages of %d bytes, want 1 or more in %d", ErrSpan, len(sizes), n, s.opt.Span)
	}
	s.sizes = append(s.sizes[:0], sizes...)
	s.at = s.at[:0]
	s.outs = make([]message.Out, len(sizes))
	for i := range s.ins {
		s.ins[i] = make([]message.In, len(sizes))
	}
	at := 0
	for _, m := range sizes {
		s.at = append(s.at, at)
		at += (m+gap-1)&^(gap-1) + gap
	}
	return nil
}

// Batch describes the loaded batch for the model.
func (s *Side) Batch() *logp.Batch {
	b := &logp.Batch{Limits: s.ch.Limits()}
	for _, m := range s.sizes {
		b.Messages = append(b.Messages, logp.Message{Size: int64(m), Flags: logp.Registered | logp.DestRegistered})
	}
	return b
}

// Play plays len(times) round trips; the first side stores half of the time of each, in
// ticks of internal/cpu.
// Hot path.
func (s *Side) Play(ctx context.Context, times []int64) error {
	n := len(times)
	if s.opt.First {
		for i := range times {
			s.post(0)
			t := s.ticks()
			s.send()
			if err := s.wait.until(ctx, &s.got, s.want, s.progress); err != nil {
				return err
			}
			times[i] = (s.ticks() - t) / 2
			if err := s.wait.until(ctx, &s.done, s.sent, s.progress); err != nil {
				return err
			}
		}
		return nil
	}
	// Receives are posted one round trip ahead, which is not timed.
	first := s.want
	for i := range min(n, 2) {
		s.post(i)
	}
	for i := range n {
		if err := s.wait.until(ctx, &s.got, first+(i+1)*len(s.sizes), s.progress); err != nil {
			return err
		}
		s.send()
		if i+2 < n {
			s.post(i & 1)
		}
		if err := s.wait.until(ctx, &s.done, s.sent, s.progress); err != nil {
			return err
		}
	}
	return nil
}

// post posts the receives of one batch.
func (s *Side) post(set int) {
	mem := s.reg.Bytes()[s.opt.Span:]
	ins := s.ins[set]
	for i, m := range s.sizes {
		in := &ins[i]
		at := s.at[i]
		in.Buf, in.LKey, in.Registered, in.Done = mem[at:at+m:at+m], s.reg.LKey(), true, &s.got
		in.RKey, in.Remote = s.reg.Key().RKey, true
		s.ch.Recv(in)
	}
	s.want += len(s.sizes)
}

// send posts the batch and starts it.
func (s *Side) send() {
	mem := s.reg.Bytes()
	lkey, rkey := s.reg.LKey(), s.reg.Key().RKey
	s.sent += len(s.sizes)
	for i, m := range s.sizes {
		o := &s.outs[i]
		at := s.at[i]
		o.Data, o.LKey, o.RKey, o.Registered, o.Done = mem[at:at+m:at+m], lkey, rkey, !s.opt.Unregistered, &s.done
		s.ch.Send(o)
		if s.each {
			if _, _, err := s.ch.Progress(); err != nil && s.down == nil {
				s.down = err
			}
		}
	}
	if err := s.progress(); err != nil && s.down == nil {
		s.down = err // the wait that follows reports it
	}
}

// Forget clears the received data, so that Check verifies the next round trip.
func (s *Side) Forget() {
	mem := s.reg.Bytes()[s.opt.Span:]
	for i, m := range s.sizes {
		clear(mem[s.at[i] : s.at[i]+m])
	}
}

// Check verifies the data received last: both sides send the same bytes. Errors wrap
// ErrWrong.
func (s *Side) Check() error {
	mine, theirs := s.reg.Bytes()[:s.opt.Span], s.reg.Bytes()[s.opt.Span:]
	for i, m := range s.sizes {
		a := s.at[i]
		if !bytes.Equal(mine[a:a+m], theirs[a:a+m]) {
			return fmt.Errorf("%w: message %d of %d, %d bytes", ErrWrong, i, len(s.sizes), m)
		}
	}
	return nil
}
