package bench

import "github.com/seed33544411/rma/internal/cpu"

// Latency of messages: a ping-pong. An empty message ends a point: it matches the
// receive that rank 1 has posted for the next message.

// tag returns the tag of message n of the point.
func (p *point) tag(n uint64) uint32 { return uint32(n % uint64(max(p.Tags, 1))) }

// postMessage posts a message of size bytes and returns the count of m.sent at which it
// is complete. The message goes out at once if the link has room, as in an engine that
// no other goroutine polls.
// Hot path.
func (m *messages) postMessage(p *point, size int, n uint64) (want int) {
	want = m.sent.n + 1
	if at := offData + m.span; m.ch.SendNow(p.tag(n), m.mem[at:at+size:at+size]) {
		m.sent.Complete(p.tag(n), size, nil) // sent at once, as in the engine
		return want
	}
	m.source(&m.send, offData+m.span, size, p.tag(n))
	m.send.Done = &m.sent
	m.ch.Send(&m.send)
	_, _, _ = m.ch.Progress() // an error closes the channel, and the wait for m.sent returns it
	return want
}

// postReceive posts the receive of one message and returns the count of m.answer at
// which it is complete.
// Hot path.
func (m *messages) postReceive(p *point, n uint64) (want int) {
	want = m.answer.n + 1
	m.target(&m.recv, offData, p.size, p.tag(n))
	m.recv.Done = &m.answer
	m.ch.Recv(&m.recv)
	return want
}

// cheapPolls is the number of polls of the peer's ring alone for one turn, which progresses
// everything; as in the engine.
const cheapPolls = 32

// look polls the ring until m.answer has counted want messages, up to cheapPolls times.
// Hot path.
func (m *messages) look(want int) bool {
	if m.caps.TargetProgress && !m.caps.Immediate {
		return false // nothing arrives without a poll of the link
	}
	for range cheapPolls {
		if m.ch.Poll() && m.answer.n >= want {
			return true
		}
	}
	return false
}

// hear waits until m.answer has counted want messages.
// Hot path.
func (m *messages) hear(want int) error {
	if m.look(want) {
		if m.lucky++; m.lucky%cheapPolls != 0 {
			return m.answer.err
		}
		if err := m.turn(); err != nil { // progress the rest of the link, once in cheapPolls
			return err
		}
	}
	for m.Begin(); m.answer.n < want; {
		if err := m.turn(); err != nil {
			return err
		}
		if m.answer.n >= want || m.look(want) {
			break
		}
		if err := m.Rest(); err != nil {
			return err
		}
	}
	return m.answer.err
}

// ping is rank 0's part of lat send.
func (m *messages) ping(p *point, rec *recorder, ways *Ways) error {
	n, err := m.pingPhase(p, rec, p.warmup(), 0)
	if err != nil {
		return err
	}
	rec.reset()
	before := m.ways()
	if n, err = m.pingPhase(p, rec, p.measure(), n); err != nil {
		return err
	}
	*ways = m.ways().since(before)
	return m.until(&m.sent, m.postMessage(p, 0, n+1))
}

// pingPhase runs until bud is used up. It does not allocate.
func (m *messages) pingPhase(p *point, rec *recorder, bud budget, n uint64) (uint64, error) {
	last := cpu.Ticks()
	until := last + bud.ticks
	for k := int64(0); k < bud.iters || last < until; k++ {
		n++
		if p.Validate {
			fill(m.out(p.size), p.seed(0, n))
		}
		got, sent := m.postReceive(p, n), m.postMessage(p, p.size, n)
		if err := m.hear(got); err != nil {
			return n, err
		}
		last = rec.lap(last, cpu.Ticks())
		if p.Validate {
			if err := p.verify(m.in(p.size), m.answer.size, 1, n); err != nil {
				return n, err
			}
		}
		if err := m.until(&m.sent, sent); err != nil {
			return n, err
		}
	}
	return n, nil
}

// pong is rank 1's part: it answers until an empty message arrives or rank 0 ends the
// point. A validation error is returned only then, so that rank 0 is not left waiting.
func (m *messages) pong(p *point) error {
	var (
		over  = cellAt(m.mem, offStop)
		wrong error
	)
	for n := uint64(1); ; n++ {
		got := m.postReceive(p, n)
		for m.Begin(); m.answer.n < got; {
			if over.load() == p.epoch {
				return wrong
			}
			if m.look(got) {
				break
			}
			err := m.turn()
			if err == nil && m.answer.n < got {
				err = m.Rest()
			}
			if err != nil {
				return firstOf(wrong, err)
			}
		}
		if m.answer.err != nil || m.answer.size == 0 {
			return firstOf(wrong, m.answer.err)
		}
		if p.Validate {
			if err := p.verify(m.in(p.size), m.answer.size, 0, n); err != nil && wrong == nil {
				wrong = err
			}
			fill(m.out(p.size), p.seed(1, n))
		}
		if err := m.until(&m.sent, m.postMessage(p, p.size, n)); err != nil {
			return firstOf(wrong, err)
		}
	}
}
