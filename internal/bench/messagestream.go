package bench

import (
	"fmt"
	"time"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/message"
)

// Streams of messages: rank 0 hands in chains as long as less than a window is
// under way, rank 1 keeps as many receives posted and posts each again as soon as it is
// filled. Empty messages, one for each posted receive, end a point.

// outbox is rank 0's window.
type outbox struct {
	slots []outSlot
	free  []*outSlot
	rec   *recorder
	n     uint64 // messages handed in since the point began
	ways  Ways   // of all messages, when the last flow had gone
	err   error
}

// outSlot is one message of the window. It is a message.Completer.
type outSlot struct {
	message.Out
	box *outbox
	at  int   // of its bytes in the region
	t0  int64 // of a chain's last message: when the chain was handed in, else 0
}

// Complete implements message.Completer.
func (o *outSlot) Complete(_ uint32, _ int, err error) {
	if o.t0 != 0 {
		o.box.rec.add(cpu.Ticks() - o.t0)
	}
	if err != nil && o.box.err == nil {
		o.box.err = err
	}
	o.box.free = append(o.box.free, o) // has room for all
}

func (s *side) newOutbox(p *point, rec *recorder) *outbox {
	w := p.window()
	b := &outbox{slots: make([]outSlot, w), free: make([]*outSlot, 0, w), rec: rec}
	for i := range b.slots {
		o := &b.slots[i]
		o.box, o.at, o.Done = b, offData+s.span+p.place(i), o
		b.free = append(b.free, o)
	}
	return b
}

// place is where slot i of a stream's window lies in either area.
func (p *point) place(i int) int {
	return i % max(p.span()/stride(p.size), 1) * stride(p.size)
}

// hand hands in the next message. Short.
func (s *side) hand(p *point, b *outbox, size int, t0 int64) {
	o := b.free[len(b.free)-1]
	b.free = b.free[:len(b.free)-1]
	o.t0 = t0
	if p.Validate && size > 0 {
		fill(s.mem[o.at:o.at+size], p.seed(0, b.n))
	}
	s.source(&o.Out, o.at, size, p.tag(b.n))
	b.n++
	s.msg.ch.Send(&o.Out)
}

// messageFlood is rank 0's part of bw and rate.
func (s *side) messageFlood(p *point, rec *recorder, ways *Ways) (msgs int64, took time.Duration, err error) {
	b := s.newOutbox(p, rec)
	if _, _, err = s.messageFlow(p, b, p.warmup()); err != nil {
		return 0, 0, err
	}
	rec.reset()
	before := s.msg.ways()
	msgs, ticks, err := s.messageFlow(p, b, p.measure())
	if err != nil {
		return 0, 0, err
	}
	*ways = b.ways.since(before)
	for range b.slots {
		s.hand(p, b, 0, 0)
	}
	return msgs, cpu.Duration(ticks), s.home(b)
}

// home waits until every message of the window is through.
func (s *side) home(b *outbox) error {
	for s.begin(); len(b.free) < len(b.slots); {
		n := len(b.free)
		err := s.turn()
		switch {
		case err != nil:
			return err
		case len(b.free) > n:
			s.begin()
		case len(b.free) < len(b.slots):
			if err := s.rest(); err != nil {
				return err
			}
		}
	}
	return b.err
}

// messageFlow streams until bud is used up and everything has arrived. Short: no
// allocation inside.
func (s *side) messageFlow(p *point, b *outbox, bud budget) (msgs, ticks int64, err error) {
	chain := chainLen(p.window())
	start := cpu.Ticks()
	s.begin()
	for now := start; now-start < bud.ticks || msgs < bud.iters; now = cpu.Ticks() {
		if len(b.free) >= chain {
			for range chain - 1 {
				s.hand(p, b, p.size, 0)
			}
			s.hand(p, b, p.size, now)
			msgs += int64(chain)
			s.begin()
		}
		n := len(b.free)
		err := s.turn()
		if err == nil && len(b.free) == n && n < chain {
			err = s.rest()
		}
		if err != nil {
			return msgs, 0, err
		}
		if b.err != nil {
			return msgs, 0, b.err
		}
	}
	if err := s.home(b); err != nil {
		return msgs, 0, err
	}
	b.ways = s.msg.ways()
	want := s.msg.asked.n + 1
	if err := s.tellNumber(b.n); err != nil {
		return msgs, 0, err
	}
	if err := s.until(&s.msg.asked, want); err != nil {
		return msgs, 0, err
	}
	ticks = cpu.Ticks() - start
	got, err := s.heardNumber()
	if err == nil && got != b.n {
		err = fmt.Errorf("%w: %s send: %d messages sent, %d arrived", ErrValidate, p.Test, b.n, got)
	}
	return msgs, ticks, err
}

// inbox is rank 1's posted receives.
type inbox struct {
	s      *side
	p      *point
	slots  []inSlot
	posted uint64 // receives, which is what the next one waits for
	n      uint64 // messages that came
	over   int    // receives that an empty message has ended
	asked  int    // questions that were answered
	err    error
}

// inSlot is one receive. It is a message.Completer.
type inSlot struct {
	message.In
	box *inbox
	at  int
	seq uint64 // of the message that it waits for
}

// Complete implements message.Completer.
func (i *inSlot) Complete(_ uint32, n int, err error) {
	b := i.box
	switch {
	case err == nil && n == 0:
		b.over++
		return
	case err != nil:
		b.err = firstOf(b.err, err)
		b.over++ // and is not posted again
		return
	case b.p.Validate:
		b.err = firstOf(b.err, b.s.verifyMessage(b.p, b.s.mem[i.at:i.at+b.p.size], n, 0, i.seq))
	}
	b.n++
	b.post(i)
}

// post hands in a receive for the next message. Short.
func (b *inbox) post(i *inSlot) {
	i.seq = b.posted
	b.s.target(&i.In, i.at, b.p.size, b.p.tag(i.seq))
	b.posted++
	b.s.msg.ch.Recv(&i.In)
}

// openInbox posts the receives of a point, before rank 0 starts.
func (s *side) openInbox(p *point) *inbox {
	b := &inbox{s: s, p: p, slots: make([]inSlot, p.window()), asked: s.msg.asked.n}
	for k := range b.slots {
		i := &b.slots[k]
		i.box, i.at, i.Done = b, offData+p.place(k), i
		b.post(i)
	}
	return b
}

// messageSink is rank 1's part: it takes messages until rank 0 ends the point,
// and answers a question once everything has come that was sent before it.
func (s *side) messageSink(p *point, b *inbox) error {
	var (
		m       = s.msg
		over    = cellAt(s.mem, offStop)
		want    uint64
		asking  bool
		n, shut = b.n, b.over
	)
	for s.begin(); b.over < len(b.slots); {
		if over.load() == p.epoch {
			return b.err
		}
		err := s.turn()
		if err == nil && m.asked.n > b.asked {
			b.asked, asking = m.asked.n, true
			want, err = s.heardNumber()
		}
		if err == nil && asking && b.n >= want {
			asking = false
			err = s.tellNumber(b.n)
		}
		switch {
		case err != nil:
			return firstOf(b.err, err)
		case b.n != n || b.over != shut:
			n, shut = b.n, b.over
			s.begin()
		default:
			if err := s.rest(); err != nil {
				return firstOf(b.err, err)
			}
		}
	}
	return b.err
}
