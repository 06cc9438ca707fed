package bench

import (
	"fmt"

	"github.com/seed33544411/rma/internal/cpu"
)

// Latency of messages: one goes, one comes back. An empty message ends a point:
// it takes the receive that rank 1 has posted for the next.

// tag is that of message n of the point.
func (p *point) tag(n uint64) uint32 { return uint32(n % uint64(max(p.Tags, 1))) }

// postMessage hands in a message of size bytes, which goes out at once if the link
// has room, as it does from an engine that nobody else drives, and returns what
// m.sent will have counted to when it is through. Short.
func (s *side) postMessage(p *point, size int, n uint64) (want int) {
	m := s.msg
	want = m.sent.n + 1
	if at := offData + s.span; m.ch.SendNow(p.tag(n), s.mem[at:at+size:at+size]) {
		m.sent.Complete(p.tag(n), size, nil) // as in the engine, what can go at once does
		return want
	}
	s.source(&m.out, offData+s.span, size, p.tag(n))
	m.out.Done = &m.sent
	m.ch.Send(&m.out)
	_, _, _ = m.ch.Progress() // an error is the channel's end: the wait for m.sent meets it
	return want
}

// postReceive hands in the receive of one message; want as for postMessage.
// Short.
func (s *side) postReceive(p *point, n uint64) (want int) {
	m := s.msg
	want = m.answer.n + 1
	s.target(&m.in, offData, p.size, p.tag(n))
	m.in.Done = &m.answer
	m.ch.Recv(&m.in)
	return want
}

// looks is how many looks at the peer's ring alone one turn that lets everything
// progress makes room for, as in the engine.
const looks = 32

// look looks for the message that makes the answers want. Short.
func (s *side) look(want int) bool {
	m := s.msg
	if s.caps.TargetProgress && !s.caps.Immediate {
		return false // nothing comes without a poll
	}
	for range looks {
		if m.ch.Poll() && m.answer.n >= want {
			return true
		}
	}
	return false
}

// hear waits for the message that makes the answers want. Short.
func (s *side) hear(want int) error {
	if s.look(want) {
		if s.lucky++; s.lucky%looks != 0 {
			return s.msg.answer.err
		}
		if err := s.turn(); err != nil { // the link's other business, if less often
			return err
		}
	}
	for s.begin(); s.msg.answer.n < want; {
		if err := s.turn(); err != nil {
			return err
		}
		if s.msg.answer.n >= want || s.look(want) {
			break
		}
		if err := s.rest(); err != nil {
			return err
		}
	}
	return s.msg.answer.err
}

// messagePing is rank 0's part.
func (s *side) messagePing(p *point, rec *recorder, ways *Ways) error {
	n, err := s.messagePhase(p, rec, p.warmup(), 0)
	if err != nil {
		return err
	}
	rec.reset()
	before := s.msg.ways()
	if n, err = s.messagePhase(p, rec, p.measure(), n); err != nil {
		return err
	}
	*ways = s.msg.ways().since(before)
	return s.until(&s.msg.sent, s.postMessage(p, 0, n+1))
}

// messagePhase plays until bud is used up. Short: no allocation inside.
func (s *side) messagePhase(p *point, rec *recorder, bud budget, n uint64) (uint64, error) {
	m := s.msg
	last := cpu.Ticks()
	until := last + bud.ticks
	for k := int64(0); k < bud.iters || last < until; k++ {
		n++
		if p.Validate {
			fill(s.out(p.size), p.seed(0, n))
		}
		got, sent := s.postReceive(p, n), s.postMessage(p, p.size, n)
		if err := s.hear(got); err != nil {
			return n, err
		}
		now := cpu.Ticks()
		rec.add(now - last)
		last = now
		if p.Validate {
			if err := s.verifyMessage(p, s.in(p.size), m.answer.size, 1, n); err != nil {
				return n, err
			}
		}
		if err := s.until(&m.sent, sent); err != nil {
			return n, err
		}
	}
	return n, nil
}

func (s *side) verifyMessage(p *point, b []byte, size, rank int, n uint64) error {
	if size != p.size {
		return fmt.Errorf("%w: %s send of %d bytes: message %d has %d", ErrValidate, p.Test, p.size, n, size)
	}
	if i := check(b, p.seed(rank, n)); i >= 0 {
		return fmt.Errorf("%w: %s send of %d bytes: message %d differs at byte %d", ErrValidate, p.Test, p.size, n, i)
	}
	return nil
}

// messagePong is rank 1's part: it answers until an empty message comes, or
// rank 0 gives up. A wrong message is remembered and reported at the end, so that
// rank 0 is not left waiting.
func (s *side) messagePong(p *point) error {
	var (
		m     = s.msg
		over  = cellAt(s.mem, offStop)
		wrong error
	)
	for n := uint64(1); ; n++ {
		got := s.postReceive(p, n)
		for s.begin(); m.answer.n < got; {
			if over.load() == p.epoch {
				return wrong
			}
			if s.look(got) {
				break
			}
			err := s.turn()
			if err == nil && m.answer.n < got {
				err = s.rest()
			}
			if err != nil {
				return firstOf(wrong, err)
			}
		}
		if m.answer.err != nil || m.answer.size == 0 {
			return firstOf(wrong, m.answer.err)
		}
		if p.Validate {
			if err := s.verifyMessage(p, s.in(p.size), m.answer.size, 0, n); err != nil && wrong == nil {
				wrong = err
			}
			fill(s.out(p.size), p.seed(1, n))
		}
		if err := s.until(&m.sent, s.postMessage(p, p.size, n)); err != nil {
			return firstOf(wrong, err)
		}
	}
}
