package logp

import (
	"fmt"
	"math"
	"strings"
)

// doneBytes is the size of the notification after a message that was written to its
// destination: a block of a ring with number and tag.
const doneBytes = 32

// Direct returns the cost of a message that is written to a destination known before (an
// advertised receive): one write, followed by one notification.
//
//	a + 2·b + Os(m) + Memory(m) + Os(done) + g + Or(done) + Ls
//
// and R(m) if the source is not registered. There is no descriptor, read request or copy,
// one soft latency, and no hard one: 2·Ls + Lh − Ls less than scatter. It is not a mode:
// the receiver has chosen it, and batches do not contain such messages. x.Flags other than
// Registered have no meaning. Direct does not allocate.
func (p *Params) Direct(x Message) Cost {
	c := Cost{Ops: 2}
	c.Terms[TermPost] = p.CPU.A + 2*p.CPU.B
	c.Terms[TermData] = p.Os.At(x.Size)
	c.Terms[TermSend] = p.Os.At(doneBytes)
	c.Terms[TermGap] = p.G
	c.Terms[TermReceive] = p.Or.At(doneBytes)
	c.Terms[TermSoft] = p.Ls
	c.Terms[TermMemory] = p.Memory.At(x.Size)
	if x.Flags&Registered == 0 {
		c.Terms[TermRegister] = p.R.At(x.Size)
	}
	return c
}

// DirectFrom returns the size from which Direct costs less than the ring, to the precision
// of powers of two and halves between them; MaxSize if it never does. there are the flags of
// the messages: memory that is registered.
func (p *Params) DirectFrom(l *Limits, there Flags) int64 {
	b := Batch{Messages: make([]Message, 1), Limits: *l}
	from := int64(MaxSize)
	for n := int64(1) << 30; n >= 16; n = n * 3 / 4 {
		x := Message{Size: n, Flags: there}
		b.Messages[0] = x
		ring := math.Inf(1)
		for _, m := range [...]Mode{Eager, Gather} {
			if c, err := p.Cost(&b, m); err == nil {
				ring = min(ring, c.Total())
			}
		}
		if c := p.Direct(x); c.Total() >= ring {
			break
		}
		from = n
	}
	return from
}

// SendRecv returns the cost of n two-sided messages of these sizes (send and receive queues of
// verbs): the receiver posts a receive for each, into its final place, and says so; then the
// sender sends them. It is the reference of §2.2.1 that one-sided modes are compared with, not a
// mode: nothing is ever planned this way.
//
//	3·a + b·(1 + 2·n) + Os(r) + Or(r) + Σ Os(mi) + (n−1)·g + 2·Ls
//
// with r the size of the receiver's request (Limits.ReadRequest), plus Memory of all bytes. The
// three posting calls are for n receives, the request, and n sends. There are no copies at either end, and no hard
// latency. Or of the messages is 0: the adapter places them, and the receiver counts completions.
// SendRecv does not allocate.
func (p *Params) SendRecv(l *Limits, ms []Message) Cost {
	n := len(ms)
	c := Cost{Ops: n, Reads: 1 + n}
	if n == 0 {
		return Cost{}
	}
	var bytes int64
	for _, x := range ms {
		c.Terms[TermData] += p.Os.At(x.Size)
		bytes += x.Size
		if x.Flags&Registered == 0 {
			c.Terms[TermRegister] += p.R.At(x.Size)
		}
		if x.Flags&DestRegistered == 0 {
			c.Terms[TermRegister] += p.R.At(x.Size)
		}
	}
	r := int64(l.ReadRequest)
	c.Terms[TermPost] = 3*p.CPU.A + p.CPU.B*float64(1+2*n)
	c.Terms[TermRequest] = p.Os.At(r)
	c.Terms[TermReceive] = p.Or.At(r)
	c.Terms[TermGap] = float64(n-1) * p.G
	c.Terms[TermSoft] = 2 * p.Ls
	c.Terms[TermMemory] = p.Memory.At(bytes)
	return c
}

// Written describes messages of an explained backlog that are not part of its batch: they
// are written to advertised receives.
type Written struct {
	Messages int
	Bytes    int64
	Cost     Cost // of all of them, one after another
}

// AddDirect adds messages besides the batch that are written to advertised receives.
func (e *Explanation) AddDirect(p *Params, ms []Message) {
	for i, x := range ms {
		c := p.Direct(x)
		if i > 0 { // one posting call, and latencies overlap
			c.Terms[TermPost] -= p.CPU.A
			c.Terms[TermSoft] = 0
			c.Terms[TermGap] += p.G
		}
		for t := range c.Terms {
			e.Written.Cost.Terms[t] += c.Terms[t]
		}
		e.Written.Cost.Ops += c.Ops
		e.Written.Messages++
		e.Written.Bytes += x.Size
	}
}

// String returns one line: number and size of the messages, the total, and the terms that
// are not 0.
func (w *Written) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%d messages, %d bytes, written where their receivers want them: %s", w.Messages, w.Bytes, us(w.Cost.Total()))
	sep := " ("
	for t, x := range w.Cost.Terms {
		if x != 0 {
			fmt.Fprintf(&s, "%s%v %.3f", sep, Term(t), x/1000)
			sep = ", "
		}
	}
	if sep != " (" {
		s.WriteByte(')')
	}
	return s.String()
}
