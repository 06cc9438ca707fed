package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
)

// MaxEager is the largest message of the bare eager ring; it fits into a part of a
// ring of default size. A larger ring would slow small messages down, since every lap
// touches all of it. Larger messages go by rendezvous, which this channel lacks.
const MaxEager = 64 << 10

const (
	// eagerTag marks the channel's work requests: other requests of this package have
	// 0 in the top bits.
	eagerTag = 1

	// eagerImm marks the channel's notifications; a stop carries 0.
	eagerImm = 1

	// eagerDepth is the channel's share of the endpoint's queue.
	eagerDepth = 128

	// Kinds of messages.
	kindData = 0
	kindLast = 1 // asks for the number of messages since the previous kindLast
	kindSum  = 2 // the answer, in Meta
)

// ring is one end of the eager channel.
type ring struct {
	*side
	ch    *eager.Channel
	turns int // calls of reap
}

// openRing makes the eager channel of s; both sides call it.
func openRing(ctx context.Context, s *side) error {
	ch, err := eager.Open(s.Link, s.EP, eager.Options{IDTag: eagerTag, Imm: eagerImm, Depth: eagerDepth})
	if ch != nil {
		s.ring = &ring{side: s, ch: ch}
		s.Claim = s.claim
	}
	if err = agree(ctx, s, wrap("open the eager channel", err)); err != nil {
		return err
	}
	mine := ch.Setup()
	b, err := s.Exchange(ctx, mine.Append(nil))
	if err != nil {
		return err
	}
	theirs, rest, err := eager.ParseSetup(b)
	if err == nil && len(rest) > 0 {
		err = errors.New("extra bytes behind the channel's set-up")
	}
	if err == nil {
		err = ch.Connect(theirs)
	}
	return agree(ctx, s, wrap("connect the eager channel", err))
}

// close closes the endpoint first, as the channel requires.
func (s *ring) close() error {
	if s == nil {
		return nil
	}
	err := s.EP.Close()
	var cs [16]fabric.Completion
	for range 64 { // requests that the close has flushed
		if s.Link.Poll(cs[:]) == 0 {
			break
		}
	}
	return errors.Join(err, s.ch.Close())
}

// miss is called after a poll without a message: it progresses link and channel.
func (s *ring) miss() error {
	if _, err := s.Poll(); err != nil {
		return err
	}
	if _, err := s.ch.Progress(false); err != nil {
		return err
	}
	return s.Rest()
}

// push sends one message and waits for room in the ring.
// Hot path.
func (s *ring) push(e eager.Envelope, b []byte) error {
	for s.Begin(); ; {
		r, err := s.ch.Send(e, b)
		if err != nil || r == eager.Accepted {
			return err
		}
		if err := s.miss(); err != nil {
			return err
		}
	}
}

// pull waits for the next message and copies it into buf.
// Hot path.
func (s *ring) pull(buf []byte) (eager.Head, error) {
	for s.Begin(); ; {
		h, ok, err := s.ch.Recv(buf)
		if ok || err != nil {
			return h, err
		}
		if err := s.miss(); err != nil {
			return h, err
		}
	}
}

// ping is rank 0's part of lat eager.
func (s *ring) ping(p *point, rec *recorder) error {
	if err := p.phases(rec, func(bud budget, n uint64) (uint64, error) { return s.pingPhase(p, rec, bud, n) }); err != nil {
		return err
	}
	return s.stop(p.epoch)
}

// pingPhase runs until bud is used up. It does not allocate.
func (s *ring) pingPhase(p *point, rec *recorder, bud budget, n uint64) (uint64, error) {
	out, in := s.out(p.size), s.in(p.size)
	last := cpu.Ticks()
	until := last + bud.ticks
	for k := int64(0); k < bud.iters || last < until; k++ {
		n++
		if p.Validate {
			fill(out, p.seed(0, n))
		}
		if err := s.push(eager.Envelope{}, out); err != nil {
			return n, err
		}
		h, err := s.pull(in)
		if err != nil {
			return n, err
		}
		last = rec.lap(last, cpu.Ticks())
		if p.Validate {
			if err := p.verify(in, h.Len, 1, n); err != nil {
				return n, err
			}
		}
		if err := s.reap(); err != nil {
			return n, err
		}
	}
	return n, nil
}

// reap polls the link at every 16th call, for loops without a wait: completions free
// slots of the channel's queue.
func (s *ring) reap() error {
	if s.turns++; s.turns&15 != 0 {
		return nil
	}
	_, err := s.Poll()
	return err
}

// echo is rank 1's part of all tests of eager. It takes messages until rank 0 ends the
// point, and returns each of them (lat) or their number on request (bw, rate).
func (s *ring) echo(p *point) error {
	var (
		over  = cellAt(s.mem, offStop)
		in    = s.in(p.size)
		out   = s.out(p.size)
		n     uint64 // messages
		since uint64 // messages since the last request for their number
		wrong error
	)
	for s.Begin(); ; {
		h, ok, err := s.ch.Recv(in)
		switch {
		case err != nil:
			return firstOf(wrong, err)
		case !ok:
			if over.load() == p.epoch {
				return wrong
			}
			if err := s.miss(); err != nil {
				return firstOf(wrong, err)
			}
			continue
		case h.Kind == kindLast:
			if err := s.push(eager.Envelope{Kind: kindSum, HasMeta: true, Meta: since}, nil); err != nil {
				return firstOf(wrong, err)
			}
			since = 0
		default:
			n++
			since++
			if p.Validate && wrong == nil {
				wrong = p.verify(in, h.Len, 0, n)
			}
			if p.Test == Lat {
				if p.Validate {
					fill(out, p.seed(1, n))
				}
				if err := s.push(eager.Envelope{}, out); err != nil {
					return firstOf(wrong, err)
				}
			}
		}
		if err := s.reap(); err != nil {
			return firstOf(wrong, err)
		}
		s.Begin()
	}
}

// flood is rank 0's part of bw and rate of eager. A sample is the time until the
// channel has accepted a chain of messages.
func (s *ring) flood(p *point, rec *recorder) (msgs int64, took time.Duration, err error) {
	warm, _, err := s.flow(p, rec, p.warmup(), 0)
	if err != nil {
		return 0, 0, err
	}
	rec.reset()
	msgs, ticks, err := s.flow(p, rec, p.measure(), uint64(warm))
	if err != nil {
		return 0, 0, err
	}
	return msgs, cpu.Duration(ticks), s.stop(p.epoch)
}

// flow sends until bud is used up, then asks rank 1 for the number of arrived
// messages; n messages were sent before. It does not allocate.
func (s *ring) flow(p *point, rec *recorder, bud budget, n uint64) (msgs, ticks int64, err error) {
	out := s.out(p.size)
	chain := chainLen(p.window())
	start := cpu.Ticks()
	last := start
	for last-start < bud.ticks || msgs < bud.iters {
		for range chain {
			n++
			if p.Validate {
				fill(out, p.seed(0, n))
			}
			if err := s.stage(out); err != nil {
				return msgs, 0, err
			}
		}
		if _, err := s.ch.Flush(); err != nil {
			return msgs, 0, err
		}
		if _, err := s.Poll(); err != nil {
			return msgs, 0, err
		}
		msgs += int64(chain)
		last = rec.lap(last, cpu.Ticks())
	}
	if err := s.push(eager.Envelope{Kind: kindLast}, nil); err != nil {
		return msgs, 0, err
	}
	h, err := s.pull(nil)
	if err != nil {
		return msgs, 0, err
	}
	ticks = cpu.Ticks() - start
	if h.Kind != kindSum || h.Meta != uint64(msgs) {
		return msgs, 0, fmt.Errorf("%w: %s eager: %d messages sent, %d arrived", ErrValidate, p.Test, msgs, h.Meta)
	}
	return msgs, ticks, nil
}

// stage adds one message to the next Flush and waits for room in the ring.
// Hot path.
func (s *ring) stage(b []byte) error {
	for s.Begin(); ; {
		r, err := s.ch.Stage(eager.Envelope{}, b)
		if err != nil || r == eager.Accepted {
			return err
		}
		if err := s.miss(); err != nil {
			return err
		}
	}
}
