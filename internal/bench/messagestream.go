package bench

import (
	"fmt"
	"time"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/message"
)

// Streams of messages: rank 0 posts chains while fewer than a window are in flight.
// Rank 1 keeps as many receives posted and posts each again as soon as it is complete.
// Empty messages, one for each posted receive, end a point.

// outbox is rank 0's window.
type outbox struct {
	slots []outSlot
	free  []*outSlot
	rec   *recorder
	n     uint64 // messages posted since the point began
	ways  Ways   // of all messages, at the end of the last flow
	err   error
}

// outSlot is one message of the window. It is a message.Completer.
type outSlot struct {
	message.Out
	box *outbox
	at  int   // offset of its bytes in the region
	t0  int64 // of a chain's last message: when the chain was posted; else 0
}

// Complete implements message.Completer.
func (o *outSlot) Complete(_ uint32, _ int, err error) {
	if o.t0 != 0 {
		o.box.rec.add(cpu.Ticks() - o.t0)
	}
	if err != nil && o.box.err == nil {
		o.box.err = err
	}
	o.box.free = append(o.box.free, o) // never grows: its capacity is the window
}

func (m *messages) newOutbox(p *point, rec *recorder) *outbox {
	w := p.window()
	b := &outbox{slots: make([]outSlot, w), free: make([]*outSlot, 0, w), rec: rec}
	for i := range b.slots {
		o := &b.slots[i]
		o.box, o.at, o.Done = b, offData+m.span+p.place(i), o
		b.free = append(b.free, o)
	}
	return b
}

// place is the offset of slot i of the window in either data area.
func (p *point) place(i int) int {
	return i % max(p.span()/stride(p.size), 1) * stride(p.size)
}

// post posts the next message.
// Hot path.
func (m *messages) post(p *point, b *outbox, size int, t0 int64) {
	o := b.free[len(b.free)-1]
	b.free = b.free[:len(b.free)-1]
	o.t0 = t0
	if p.Validate && size > 0 {
		fill(m.mem[o.at:o.at+size], p.seed(0, b.n))
	}
	m.source(&o.Out, o.at, size, p.tag(b.n))
	b.n++
	m.ch.Send(&o.Out)
}

// flood is rank 0's part of bw and rate.
func (m *messages) flood(p *point, rec *recorder, ways *Ways) (msgs int64, took time.Duration, err error) {
	b := m.newOutbox(p, rec)
	if _, _, err = m.flow(p, b, p.warmup()); err != nil {
		return 0, 0, err
	}
	rec.reset()
	before := m.ways()
	msgs, ticks, err := m.flow(p, b, p.measure())
	if err != nil {
		return 0, 0, err
	}
	*ways = b.ways.since(before)
	for range b.slots {
		m.post(p, b, 0, 0)
	}
	return msgs, cpu.Duration(ticks), m.home(b)
}

// home waits until every message of the window is complete.
func (m *messages) home(b *outbox) error {
	for m.Begin(); len(b.free) < len(b.slots); {
		n := len(b.free)
		err := m.turn()
		switch {
		case err != nil:
			return err
		case len(b.free) > n:
			m.Begin()
		case len(b.free) < len(b.slots):
			if err := m.Rest(); err != nil {
				return err
			}
		}
	}
	return b.err
}

// flow streams until bud is used up and all messages have arrived. It does not
// allocate.
func (m *messages) flow(p *point, b *outbox, bud budget) (msgs, ticks int64, err error) {
	chain := chainLen(p.window())
	start := cpu.Ticks()
	m.Begin()
	for now := start; now-start < bud.ticks || msgs < bud.iters; now = cpu.Ticks() {
		if len(b.free) >= chain {
			for range chain - 1 {
				m.post(p, b, p.size, 0)
			}
			m.post(p, b, p.size, now)
			msgs += int64(chain)
			m.Begin()
		}
		n := len(b.free)
		err := m.turn()
		if err == nil && len(b.free) == n && n < chain {
			err = m.Rest()
		}
		if err != nil {
			return msgs, 0, err
		}
		if b.err != nil {
			return msgs, 0, b.err
		}
	}
	if err := m.home(b); err != nil {
		return msgs, 0, err
	}
	b.ways = m.ways()
	want := m.asked.n + 1
	if err := m.tellNumber(b.n); err != nil {
		return msgs, 0, err
	}
	if err := m.until(&m.asked, want); err != nil {
		return msgs, 0, err
	}
	ticks = cpu.Ticks() - start
	got, err := m.receiveNumber()
	if err == nil && got != b.n {
		err = fmt.Errorf("%w: %s send: %d messages sent, %d arrived", ErrValidate, p.Test, b.n, got)
	}
	return msgs, ticks, err
}

// inbox is rank 1's posted receives.
type inbox struct {
	m      *messages
	p      *point
	slots  []inSlot
	posted uint64 // receives posted so far: the number of the message that the next one is for
	n      uint64 // messages received
	over   int    // receives ended by an empty message or an error
	asked  int    // questions answered
	err    error
}

// inSlot is one receive. It is a message.Completer.
type inSlot struct {
	message.In
	box *inbox
	at  int
	seq uint64 // number of the message that it is for
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
		b.over++ // it is not posted again
		return
	case b.p.Validate:
		b.err = firstOf(b.err, b.p.verify(b.m.mem[i.at:i.at+b.p.size], n, 0, i.seq))
	}
	b.n++
	b.post(i)
}

// post posts a receive for the next message.
// Hot path.
func (b *inbox) post(i *inSlot) {
	i.seq = b.posted
	b.m.target(&i.In, i.at, b.p.size, b.p.tag(i.seq))
	b.posted++
	b.m.ch.Recv(&i.In)
}

// openInbox posts the receives of a point, before rank 0 starts.
func (m *messages) openInbox(p *point) *inbox {
	b := &inbox{m: m, p: p, slots: make([]inSlot, p.window()), asked: m.asked.n}
	for k := range b.slots {
		i := &b.slots[k]
		i.box, i.at, i.Done = b, offData+p.place(k), i
		b.post(i)
	}
	return b
}

// sink is rank 1's part: it takes messages until rank 0 ends the point, and answers a
// question once all messages sent before it have arrived.
func (m *messages) sink(p *point, b *inbox) error {
	var (
		over    = cellAt(m.mem, offStop)
		want    uint64
		asking  bool
		n, shut = b.n, b.over
	)
	for m.Begin(); b.over < len(b.slots); {
		if over.load() == p.epoch {
			return b.err
		}
		err := m.turn()
		if err == nil && m.asked.n > b.asked {
			b.asked, asking = m.asked.n, true
			want, err = m.receiveNumber()
		}
		if err == nil && asking && b.n >= want {
			asking = false
			err = m.tellNumber(b.n)
		}
		switch {
		case err != nil:
			return firstOf(b.err, err)
		case b.n != n || b.over != shut:
			n, shut = b.n, b.over
			m.Begin()
		default:
			if err := m.Rest(); err != nil {
				return firstOf(b.err, err)
			}
		}
	}
	return b.err
}
