package logp

import (
	"math"

	"github.com/seed33544411/rma/internal/enum"
)

// Term names a part of a cost. See the package comment for the formulas.
type Term uint8

// Terms.
const (
	TermPost     Term = iota // a + b·w: processor time of posting, both ends
	TermSend                 // Os of eager and gather writes
	TermDesc                 // Os of scatter descriptors
	TermRequest              // k·Os(r): read requests
	TermData                 // Os of the data that reads return
	TermGap                  // g between operations
	TermCursor               // Os(0) + g: cursor updates
	TermReceive              // Or of operations that arrive in rings
	TermCopyOut              // C at the sender
	TermCopyIn               // C at the receiver
	TermRegister             // R at either end
	TermSoft                 // Ls, or 2·Ls
	TermHard                 // Lh
	TermCredit               // expected wait for credit, before and within
	TermMemory               // cost of the whole batch beyond the caches
	TermExtra                // Params.Extra
	TermLearned              // change by Params.Scale

	NumTerms = 17
)

var termNames = [NumTerms]string{"post", "send", "desc", "request", "data", "gap", "cursor", "receive",
	"copy_out", "copy_in", "register", "soft", "hard", "credit", "memory", "extra", "learned"}

// String returns the name of the term.
func (t Term) String() string { return enum.Name("term", termNames[:], t) }

// Cost is a predicted time, term by term, in ns.
type Cost struct {
	Terms [NumTerms]float64
	Ops   int   // work requests posted by the sender, cursor updates included
	Reads int   // work requests posted by the receiver
	Ring  int64 // bytes of receiver memory used
}

// Total returns the sum of the terms.
func (c *Cost) Total() (t float64) {
	for _, x := range c.Terms {
		t += x
	}
	return t
}

// Cost returns the cost of transferring the whole batch in mode m, in the order of the
// batch, split where a limit requires it. The error wraps ErrInfeasible if mode m cannot
// carry a message. Cost does not allocate. The batch must be valid.
func (p *Params) Cost(b *Batch, m Mode) (Cost, error) {
	t := tally{p: p, b: b}
	var r room
	for i := range b.Messages {
		x := b.Messages[i]
		if err := p.Feasible(&b.Limits, x, m); err != nil {
			return Cost{}, err
		}
		if i == 0 || !r.fits(&b.Limits, x, m) {
			if i > 0 {
				t.end()
			}
			t.begin(m)
			r = room{}
			r.fits(&b.Limits, x, m)
		}
		t.add(i)
	}
	if len(b.Messages) > 0 {
		t.end()
	}
	return t.cost(), nil
}

// room counts the use of limits by the messages of one part.
type room struct {
	bytes int64
	n     int32
	sge   int32
}

// fits adds x and reports whether a part of mode m still holds all messages.
func (r *room) fits(l *Limits, x Message, m Mode) bool {
	r.n++
	switch m {
	case Gather:
		r.bytes += x.Size + int64(l.Segment)
		if !l.staged(x) {
			r.sge++
		}
		return r.bytes+int64(l.Header) <= l.GatherMax && (r.sge == 0 || 1+r.sge <= l.MaxSGE)
	case Scatter:
		return r.n <= l.ScatterSegs
	}
	return true
}

// tally sums up a plan part by part. It defines the model: the faster computations of the
// planner are tested against it.
type tally struct {
	p     *Params
	b     *Batch
	c     Cost
	terms [NumTerms]float64 // of the current part, before scaling
	mode  Mode
	used  ModeSet
	load  [NumModes]float64 // the costs that Scale multiplies, by mode
	flow  flow
	moved [NumModes]int64 // bytes of all parts

	n      int
	bytes  int64 // of the part
	region int64 // of the current contiguous source region (scatter)
	reads  int
	last   int // the message added last
}

func (t *tally) begin(m Mode) {
	t.mode, t.terms = m, [NumTerms]float64{}
	t.n, t.bytes, t.region, t.reads, t.last = 0, 0, 0, 0, -2
}

// add adds message i of the batch to the part.
func (t *tally) add(i int) {
	p, l, x := t.p, &t.b.Limits, t.b.Messages[i]
	t.n++
	t.bytes += x.Size
	t.moved[t.mode] += x.Size
	e := &p.Extra[t.mode]
	t.terms[TermExtra] += e.PerMessage + e.PerByte*float64(x.Size)
	switch t.mode {
	case Eager:
		t.operation(TermSend, x.Size)
		t.flow.put(l.held(x.Size + int64(l.Header)))
		if l.copied(x) {
			t.terms[TermCopyOut] += p.C.At(x.Size)
		}
	case Gather:
		if l.staged(x) {
			t.terms[TermCopyOut] += p.C.At(x.Size)
		}
	case Scatter:
		if x.Flags&Registered == 0 {
			t.terms[TermRegister] += p.R.At(x.Size)
		}
		if x.Flags&DestRegistered == 0 {
			t.terms[TermRegister] += p.R.At(x.Size)
		}
		if x.Flags&Joined == 0 || t.last != i-1 {
			t.endRegion()
			t.reads++
		}
		t.region += x.Size
	}
	if t.mode != Scatter && x.Flags&InPlace == 0 {
		t.terms[TermCopyIn] += p.C.At(x.Size)
	}
	t.last = i
}

// operation adds one write of m bytes into the peer's ring.
func (t *tally) operation(term Term, m int64) {
	p := t.p
	t.terms[term] += p.Os.At(m)
	t.terms[TermGap] += p.G
	t.terms[TermPost] += p.CPU.B
	t.terms[TermReceive] += p.Or.At(m)
	t.terms[TermExtra] += p.Extra[t.mode].PerOp
	t.c.Ops++
}

func (t *tally) endRegion() {
	if t.reads > 0 {
		t.terms[TermData] += t.p.Os.At(t.region)
	}
	t.region = 0
}

// end completes the part.
func (t *tally) end() {
	p, l := t.p, &t.b.Limits
	switch t.mode {
	case Eager:
		t.c.Ring += int64(t.n) * l.EagerBlock
	case Gather:
		m := t.bytes + int64(t.n)*int64(l.Segment) + int64(l.Header)
		t.operation(TermSend, m)
		t.flow.put(l.held(m))
		t.c.Ring += m
	case Scatter:
		m := int64(t.n)*int64(l.DescSegment) + int64(l.Header)
		t.endRegion()
		t.operation(TermDesc, m)
		t.c.Ring += m
		t.c.Reads += t.reads
		t.terms[TermRequest] += float64(t.reads) * p.Os.At(int64(l.ReadRequest))
		t.terms[TermGap] += float64(t.reads-1) * p.G
		t.terms[TermPost] += p.CPU.A + p.CPU.B*float64(t.reads)
	}
	if !t.used.Has(t.mode) {
		t.used = t.used.With(t.mode)
		t.terms[TermExtra] += max(p.Extra[t.mode].Fixed, 0)
		if l.Cursor {
			t.terms[TermCursor] += p.Os.At(0) + p.G
			t.terms[TermPost] += p.CPU.B
			t.c.Ops++
		}
	}
	s, sum := p.scale(t.mode), 0.0
	for i, x := range t.terms {
		t.c.Terms[i] += x
		sum += x
	}
	t.c.Terms[TermLearned] += (s - 1) * sum
	t.load[t.mode] += sum
	if t.mode != Scatter {
		t.flow.work += s * (t.terms[TermReceive] + t.terms[TermCopyIn])
	}
}

// cost completes the plan: the costs that all parts share are added once.
func (t *tally) cost() Cost {
	if t.used == 0 {
		return t.c
	}
	t.c.Terms[TermPost] += t.p.CPU.A
	t.c.Terms[TermGap] -= t.p.G
	var far Mode
	farthest, wait := math.Inf(-1), 0.0
	for m := range Mode(NumModes) {
		if !t.used.Has(m) {
			continue
		}
		wait = max(wait, t.b.Wait[m])
		if x := t.p.tail(m); x > farthest {
			far, farthest = m, x
		}
	}
	soft, hard := t.p.latency(far)
	t.c.Terms[TermSoft] += soft
	t.c.Terms[TermHard] += hard
	less := min(t.p.Extra[far].Fixed, 0)
	t.c.Terms[TermExtra] += less
	t.c.Terms[TermLearned] += farthest - soft - hard - less
	t.load[far] += soft + hard + less
	t.c.Terms[TermCredit] += wait + t.b.Limits.stall(t.p.CreditTrip(), &t.flow)
	total := int64(0)
	for m, n := range t.moved {
		total += n
		x := t.p.Extra[m].first(n)
		t.c.Terms[TermExtra] += x
		t.c.Terms[TermLearned] += (t.p.scale(Mode(m)) - 1) * x
		t.load[m] += x
	}
	t.c.Terms[TermMemory] += t.p.Memory.At(total)
	return t.c
}

// tail returns the corrected latency of mode m. A negative Extra.Fixed is part of it: in a
// plan of several modes the longest tail counts, so that an additional mode never makes a
// plan cheaper.
func (p *Params) tail(m Mode) float64 {
	soft, hard := p.latency(m)
	return p.scale(m) * (soft + hard + min(p.Extra[m].Fixed, 0))
}

// SenderSees returns the part of the cost of a batch, all of it in mode m, between the
// sender's first step and its last event that the sender observes: the completion of a
// signalled write for eager or gather, the FIN for a scatter. In terms of the package
// comment, for one part:
//
//	eager    a + b·n + Σ Os(mi) + (n−1)·g + copy out + Lh
//	gather   a + b + Os(S + h·n + c) + copy out + Lh
//	scatter  all of its cost + Os(0) + g + Ls
//
// An acknowledgement is an answer without software at the target, hence Lh. The result does
// not include the receiver's work on data from the ring, nor an earlier wait for credit,
// nor Extra of eager and gather, because it is unknown at which end that is spent. Scale is
// not applied. Errors are those of Cost. It does not allocate.
func (p *Params) SenderSees(b *Batch, m Mode) (float64, error) {
	c, err := p.Cost(b, m)
	if err != nil {
		return 0, err
	}
	t := &c.Terms
	if m == Scatter {
		return c.Total() - t[TermLearned] - t[TermCredit] + p.Os.At(0) + p.G + p.Ls, nil
	}
	return t[TermPost] + t[TermSend] + t[TermGap] + t[TermCursor] + t[TermCopyOut] + p.Lh, nil
}

// Feasible returns nil if mode m can carry message x of a batch with limits l, else an
// error that wraps ErrInfeasible and contains the reason. It does not allocate.
func (p *Params) Feasible(l *Limits, x Message, m Mode) error {
	switch m {
	case Eager:
		if x.Size > l.EagerMax {
			return ErrEagerBlock
		}
	case Gather:
		if x.Size+int64(l.Segment)+int64(l.Header) > l.GatherMax {
			return ErrGatherRing
		}
	case Scatter:
		if l.ScatterSegs < 1 {
			return ErrScatterOff
		}
		if x.Flags&Apart != 0 {
			return ErrApart
		}
		if x.Flags&(Registered|DestRegistered) != Registered|DestRegistered && !p.R.Known() {
			return ErrUnregistered
		}
	default:
		return ErrNoMode
	}
	return nil
}
