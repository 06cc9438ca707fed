package logp

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func total(t *testing.T, p *Params, b *Batch, m Mode) float64 {
	c, err := p.Cost(b, m)
	require.NoError(t, err)
	return c.Total()
}

func sizes(ss ...int64) []Message {
	ms := make([]Message, len(ss))
	for i, s := range ss {
		ms[i] = Message{Size: s, Flags: Registered | DestRegistered}
	}
	return ms
}

// The formulas of the source, written out.
func TestFormulasOfTheSource(t *testing.T) {
	t.Parallel()
	p, l := thesis(t), plain()
	r := rand.New(rand.NewPCG(11, 1))
	for range cases(500) {
		n := 1 + r.IntN(20)
		b := &Batch{Limits: l}
		var sum, s float64
		var bytes int64
		for range n {
			m := randSize(r)
			b.Messages = append(b.Messages, sizes(m)...)
			sum += p.Os.At(m)
			bytes += m
		}
		f := float64(n)
		s = p.Os.At(bytes + 16*int64(n) + 8)
		require.InEpsilon(t, sum+(f-1)*p.G+p.Ls, total(t, p, b, Eager), 1e-9, "2.2.2")
		require.InEpsilon(t, s+p.Ls, total(t, p, b, Gather), 1e-9, "2.3.1")
		two := p.SendRecv(&l, b.Messages)
		require.InEpsilon(t, p.Os.At(16)+sum+(f-1)*p.G+2*p.Ls, two.Total(), 1e-9, "2.2.1, whose Or is 0 here")
		// 2.3.2 reads one contiguous source.
		for i := range b.Messages {
			b.Messages[i].Flags |= Joined
		}
		desc := p.Os.At(32*int64(n)+8) + p.Os.At(16)
		require.InEpsilon(t, desc+p.Os.At(bytes)+2*p.Ls+p.Lh, total(t, p, b, Scatter), 1e-9, "2.3.2")
		b.Limits.Cursor = true
		require.InEpsilon(t, desc+p.Os.At(bytes)+2*p.Ls+p.Lh+p.Os.At(0)+p.G, total(t, p, b, Scatter), 1e-9, "2.4.2")
		b.Limits.Cursor = false
		// Separate sources: one read each.
		for i := range b.Messages {
			b.Messages[i].Flags &^= Joined
		}
		want := p.Os.At(32*int64(n)+8) + f*p.Os.At(16) + sum + (f-1)*p.G + 2*p.Ls + p.Lh
		require.InEpsilon(t, want, total(t, p, b, Scatter), 1e-9)
	}
}

// What the source leaves out of two-sided messages: posting, registration, memory, Or.
func TestSendRecv(t *testing.T) {
	p, l := thesis(t), plain()
	p.CPU, p.Or, p.R, p.Memory = Posting{A: 10, B: 1}, line(t, 5, 0, 0), line(t, 100, 1, 0), line(t, 7, 0, 0)
	require.Zero(t, p.SendRecv(&l, nil))
	for _, n := range []int{1, 3} {
		bare := thesis(t).SendRecv(&l, sizes(make([]int64, n)...))
		c := p.SendRecv(&l, sizes(make([]int64, n)...))
		require.InDelta(t, bare.Total()+30+float64(1+2*n)+5+7, c.Total(), 1e-9)
		require.Equal(t, []int{n, 1 + n}, []int{c.Ops, c.Reads})
		ms := make([]Message, n) // registered at neither end
		c2 := p.SendRecv(&l, ms)
		require.InDelta(t, c.Total()+200*float64(n), c2.Total(), 1e-9)
	}
	ms := sizes(8, 8)
	require.Zero(t, testing.AllocsPerRun(10, func() { _ = p.SendRecv(&l, ms) }))
}

// Aggregating a and b pays iff Os(a+b+2h+c) < Os(a) + Os(b) + g, and so on for
// the other two comparisons of section 2.5.
func TestInequalitiesOfTheSource(t *testing.T) {
	t.Parallel()
	p, l := thesis(t), plain()
	r := rand.New(rand.NewPCG(12, 1))
	var gathers, eagers int
	for range 3000 {
		a, b := randSize(r), randSize(r)
		p.G = 500 * r.Float64()
		p.Os = grid(t, r, 600, 0.3)
		l.Segment = int32(r.IntN(2000))
		batch := &Batch{Messages: sizes(a, b), Limits: l}
		d, err := p.Choose(batch)
		require.NoError(t, err)
		h, c := int64(l.Segment), int64(l.Header)
		apart, together := p.Os.At(a)+p.Os.At(b)+p.G, p.Os.At(a+b+2*h+c)
		scatter := p.Os.At(2*int64(l.DescSegment)+c) + 2*p.Os.At(16) + p.G + p.Os.At(a) + p.Os.At(b) + p.Ls + p.Lh
		switch least := min(apart, together, scatter); {
		case math.Abs(apart-together) < 1e-6:
		case least == apart:
			require.Equal(t, Eager, d.Mode)
			eagers++
		case least == together:
			require.Equal(t, Gather, d.Mode)
			gathers++
		default:
			require.Equal(t, Scatter, d.Mode)
		}
		// 3.2: with Os(a+b) < Os(a) + Os(b) gather always transmits sooner
		// than scatter (headers of the same size, no copies).
		if l.Segment == l.DescSegment && together < apart {
			require.Less(t, d.Costs[Gather].Total(), d.Costs[Scatter].Total())
		}
	}
	require.Greater(t, gathers, 100)
	require.Greater(t, eagers, 100)
}

func TestTiesGoToLessReceiverMemory(t *testing.T) {
	t.Parallel()
	b := &Batch{Messages: sizes(100), Limits: plain()}
	d, err := new(Params).Choose(b) // everything costs nothing
	require.NoError(t, err)
	require.True(t, d.Tied)
	require.Equal(t, Scatter, d.Mode)
	b.Limits.ScatterSegs = 0
	d, err = new(Params).Choose(b)
	require.NoError(t, err)
	require.Equal(t, Gather, d.Mode)
	b.Limits.EagerBlock = 64
	d, err = new(Params).Choose(b)
	require.NoError(t, err)
	require.Equal(t, Eager, d.Mode)
}

// Each term the source leaves out appears where it should, and only there.
func TestAddedTerms(t *testing.T) {
	t.Parallel()
	p := thesis(t)
	p.C, p.R, p.Or = line(t, 10, 0.1, 0), line(t, 1000, 0.01, 0), line(t, 50, 0, 0)
	p.CPU = Posting{A: 100, B: 20}
	b := &Batch{Messages: sizes(100, 5000), Limits: usual(), Wait: [NumModes]float64{7, 8, 9}}
	b.Limits.EagerMax = 1 << 20
	term := func(m Mode, x Term) float64 {
		c, err := p.Cost(b, m)
		require.NoError(t, err)
		return c.Terms[x]
	}
	copies := p.C.At(100) + p.C.At(5000)
	require.InDelta(t, copies, term(Eager, TermCopyOut), 1e-9)
	b.Limits.EagerInPlace = 1000
	require.InDelta(t, p.C.At(100), term(Eager, TermCopyOut), 1e-9, "the large one goes in place")
	b.Limits.EagerInPlace = 0
	require.InDelta(t, p.C.At(100), term(Gather, TermCopyOut), 1e-9, "the small one is staged")
	require.Zero(t, term(Scatter, TermCopyOut))
	require.InDelta(t, copies, term(Eager, TermCopyIn), 1e-9)
	require.InDelta(t, copies, term(Gather, TermCopyIn), 1e-9)
	require.Zero(t, term(Scatter, TermCopyIn))
	require.InDelta(t, 140, term(Eager, TermPost), 1e-9)
	require.InDelta(t, 120, term(Gather, TermPost), 1e-9)
	require.InDelta(t, 120+140, term(Scatter, TermPost), 1e-9)
	require.InDelta(t, 100, term(Eager, TermReceive), 1e-9)
	require.InDelta(t, 50, term(Gather, TermReceive), 1e-9)
	require.InDelta(t, 50, term(Scatter, TermReceive), 1e-9)
	for m := range Mode(NumModes) {
		require.InDelta(t, b.Wait[m], term(m, TermCredit), 1e-9)
		require.Zero(t, term(m, TermRegister))
		require.Zero(t, term(m, TermLearned))
	}
	b.Messages[1].Flags = InPlace
	require.InDelta(t, copies, term(Gather, TermCopyOut), 1e-9, "unregistered is staged")
	require.InDelta(t, p.C.At(100), term(Gather, TermCopyIn), 1e-9)
	require.InDelta(t, 2*p.R.At(5000), term(Scatter, TermRegister), 1e-9, "both ends")
	before := total(t, p, b, Gather)
	p.Scale[Gather] = 1.5
	c, err := p.Cost(b, Gather)
	require.NoError(t, err)
	shared := p.CPU.A - p.G + b.Wait[Gather]
	require.InDelta(t, 0.5*(before-shared), c.Terms[TermLearned], 1e-6)
}

func TestGatherIsCutAtItsLimits(t *testing.T) {
	t.Parallel()
	p, l := thesis(t), usual()
	b := &Batch{Messages: uniform(64, 1000), Limits: l}
	c, err := p.Cost(b, Gather)
	require.NoError(t, err)
	require.Equal(t, 5, c.Ops, "15 pieces each beside the header")
	b.Messages = uniform(64, 200)
	c, _ = p.Cost(b, Gather)
	require.Equal(t, 1, c.Ops, "staged messages share a piece")
	b.Limits.GatherMax = 216*10 + 16
	c, _ = p.Cost(b, Gather)
	require.Equal(t, 7, c.Ops, "10 messages a write")
	require.InDelta(t, 6*p.G, c.Terms[TermGap], 1e-9)
	b.Limits.ScatterSegs = 20
	c, _ = p.Cost(b, Scatter)
	require.Equal(t, 4, c.Ops)
	require.Equal(t, 64, c.Reads)
}

func TestFeasible(t *testing.T) {
	t.Parallel()
	p, l := thesis(t), usual()
	reg := Message{Size: 5000, Flags: Registered | DestRegistered}
	require.ErrorIs(t, p.Feasible(&l, reg, Eager), ErrEagerBlock)
	require.NoError(t, p.Feasible(&l, reg, Gather))
	require.NoError(t, p.Feasible(&l, reg, Scatter))
	require.ErrorIs(t, p.Feasible(&l, Message{Size: 128 << 10}, Gather), ErrGatherRing)
	for _, f := range []Flags{0, Registered, DestRegistered} {
		require.ErrorIs(t, p.Feasible(&l, Message{Size: 1, Flags: f}, Scatter), ErrUnregistered)
	}
	p.R = line(t, 100, 1, 0)
	require.NoError(t, p.Feasible(&l, Message{Size: 1}, Scatter))
	require.ErrorIs(t, p.Feasible(&l, Message{Size: 1, Flags: Apart}, Scatter), ErrApart)
	require.NoError(t, p.Feasible(&l, Message{Size: 1, Flags: Apart}, Eager))
	l.MaxSGE, l.ScatterSegs = 1, 0
	require.NoError(t, p.Feasible(&l, reg, Gather), "staged with the header")
	l.GatherMax = 0
	require.ErrorIs(t, p.Feasible(&l, reg, Scatter), ErrScatterOff)
	require.ErrorIs(t, p.Feasible(&l, reg, Mode(7)), ErrInfeasible)
	require.Zero(t, modesOf(p, &l, reg))
	_, err := p.Choose(&Batch{Messages: []Message{reg}, Limits: l})
	require.ErrorIs(t, err, ErrInfeasible)
}

// More bytes, more messages: never sooner. (Os, Or, C, R are monotone.)
func TestCostIsMonotone(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(13, 1))
	for range cases(2000) {
		p, b := randParams(t, r), randBatch(r, 1+r.IntN(8))
		b.Limits = plain()
		b.Limits.Cursor = r.IntN(2) == 0
		for m := range Mode(NumModes) {
			before, err := p.Cost(b, m)
			if err != nil {
				continue
			}
			i := r.IntN(len(b.Messages))
			more := *b
			more.Messages = append([]Message(nil), b.Messages...)
			more.Messages[i].Size += randSize(r)
			require.GreaterOrEqual(t, total(t, p, &more, m), before.Total()*(1-1e-9), "%v: a larger message", m)
			more.Messages = append(append([]Message(nil), b.Messages...), b.Messages[i])
			require.GreaterOrEqual(t, total(t, p, &more, m), before.Total()*(1-1e-9), "%v: one more message", m)
		}
	}
}

// All times k-fold: all costs k-fold, the same choice.
func TestScaleInvariance(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(14, 1))
	for range cases(1000) {
		p, b := randParams(t, r), randBatch(r, 1+r.IntN(8))
		const k = 8 // a power of two: exact in floating point
		q, c := times(t, p, k), *b
		for m := range c.Wait {
			c.Wait[m] *= k
		}
		d, err := p.Choose(b)
		e, err2 := q.Choose(&c)
		require.Equal(t, err, err2)
		if err != nil {
			continue
		}
		require.Equal(t, d.Mode, e.Mode)
		require.InEpsilon(t, k*d.Costs[d.Mode].Total(), e.Costs[e.Mode].Total(), 1e-9)
	}
}

func times(t *testing.T, p *Params, k float64) *Params {
	curve := func(c Curve) Curve {
		ps := c.Points()
		for i := range ps {
			ps[i].NS *= k
		}
		return mustCurve(t, ps...)
	}
	q := &Params{Os: curve(p.Os), Or: curve(p.Or), C: curve(p.C), R: curve(p.R), G: k * p.G, Ls: k * p.Ls, Lh: k * p.Lh,
		Memory: curve(p.Memory), CPU: Posting{k * p.CPU.A, k * p.CPU.B}, Scale: p.Scale}
	for m, e := range p.Extra {
		q.Extra[m] = Extra{k * e.Fixed, k * e.PerOp, k * e.PerMessage, k * e.PerByte, k * e.PerFirst}
	}
	return q
}

func TestCostAllocatesNothing(t *testing.T) {
	p, b := thesis(t), &Batch{Messages: uniform(64, 64), Limits: usual()}
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = p.Choose(b) }))
}
