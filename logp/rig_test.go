package logp

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// cases is how many random cases to look at, of n.
func cases(n int) int {
	if testutil.Race || testing.Short() {
		return n / 8
	}
	return n
}

func mustCurve(tb testing.TB, ps ...Point) Curve {
	c, err := NewCurve(ps)
	require.NoError(tb, err)
	return c
}

// line is a + b·m, flat up to knee.
func line(tb testing.TB, a, b float64, knee int64) Curve {
	ps := []Point{{Size: 0, NS: a, Conf: 1}}
	if knee > 0 {
		ps = append(ps, Point{Size: knee, NS: a, Conf: 1})
	}
	return mustCurve(tb, append(ps, Point{Size: knee + 1<<20, NS: a + b*(1<<20), Conf: 1})...)
}

// grid draws a curve over powers of two that never falls.
func grid(tb testing.TB, r *rand.Rand, base, perByte float64) Curve {
	y := base * (0.5 + r.Float64())
	ps := []Point{{Size: 0, NS: y, Conf: r.Float64()}}
	prev := int64(0)
	for x := int64(1); x <= 1<<22; x *= 2 {
		y += float64(x-prev) * perByte * 2 * r.Float64()
		prev = x
		ps = append(ps, Point{Size: x, NS: y, Conf: r.Float64()})
	}
	return mustCurve(tb, ps...)
}

// thesis holds only the terms of the source, near its QDR cards.
func thesis(tb testing.TB) *Params {
	return &Params{
		Os: mustCurve(tb, Point{0, 600, 1}, Point{2048, 900, 1}, Point{8192, 2400, 1}, Point{1 << 20, 300000, 1}),
		G:  220, Ls: 1000, Lh: 700,
	}
}

// plain has no cursor writes and no limits in the way.
func plain() Limits {
	return Limits{EagerMax: 1 << 30, EagerBlock: 4096, GatherMax: MaxSize, MaxSGE: 1 << 20, ScatterSegs: 1 << 20,
		Header: 8, Segment: 16, DescSegment: 32, ReadRequest: 16}
}

// real is a link as they are.
func usual() Limits {
	return Limits{EagerMax: 4080, EagerBlock: 4096, GatherMax: 128 << 10, GatherCopy: 256, MaxSGE: 16, ScatterSegs: 64,
		Header: 16, Segment: 16, DescSegment: 32, ReadRequest: 28}
}

// ring gives l a ring of so many blocks, as package flowctl would make it.
func ring(l *Limits, blocks int64) {
	l.Ring, l.Credit = l.EagerBlock*(blocks-blocks/8), l.EagerBlock*blocks/2
	l.GatherMax = min(l.GatherMax, l.Ring-l.Credit)
	l.EagerMax = min(l.EagerMax, l.Ring-l.Credit-int64(l.Header))
}

func randParams(tb testing.TB, r *rand.Rand) *Params {
	p := &Params{
		Os: grid(tb, r, 600, 0.3), Or: grid(tb, r, 80, 0.005), C: grid(tb, r, 20, 0.08),
		G: 400 * r.Float64(), Ls: 2000 * r.Float64(), Lh: 1500 * r.Float64(),
		CPU: Posting{A: 200 * r.Float64(), B: 80 * r.Float64()},
	}
	if r.IntN(3) > 0 {
		p.R = grid(tb, r, 3000, 0.05)
	}
	if int(p.Ls)%3 > 0 {
		var err error
		p.Os, p.Memory, err = p.Os.Split(p.G + p.CPU.B + p.Or.At(0))
		require.NoError(tb, err)
	}
	for m := range p.Extra {
		if r.IntN(2) == 0 {
			p.Extra[m] = Extra{Fixed: 300 * r.Float64(), PerOp: 100 * r.Float64(), PerMessage: 50 * r.Float64(), PerByte: 0.01 * r.Float64(), PerFirst: 0.01 * r.Float64()}
			if r.IntN(2) == 0 {
				soft, hard := p.latency(Mode(m))
				p.Extra[m].Fixed = -0.95 * (soft + hard) * r.Float64()
			}
		}
		if r.IntN(3) == 0 {
			p.Scale[m] = 0.7 + 0.8*r.Float64()
		}
	}
	require.NoError(tb, p.Validate())
	return p
}

func randLimits(r *rand.Rand) Limits {
	l := usual()
	l.EagerMax = []int64{-1, 64, 4080, 65536, 1 << 30}[r.IntN(5)]
	l.EagerInPlace = []int64{0, 0, 1, 1024}[r.IntN(4)]
	l.GatherMax = []int64{0, 4096, 65536, 1 << 20, 1 << 30}[r.IntN(5)]
	l.GatherCopy = []int64{0, 64, 512}[r.IntN(3)]
	l.MaxSGE = []int32{1, 2, 3, 4, 30}[r.IntN(5)]
	l.ScatterSegs = []int32{0, 1, 2, 16, 64}[r.IntN(5)]
	l.Cursor = r.IntN(2) == 0
	if r.IntN(2) == 0 {
		ring(&l, 16<<r.IntN(5))
	}
	return l
}

func randSize(r *rand.Rand) int64 { return int64(math.Exp2(21 * r.Float64())) }

func randBatch(r *rand.Rand, n int) *Batch {
	b := &Batch{Limits: randLimits(r), Messages: make([]Message, n)}
	mix := r.IntN(4)
	for i := range b.Messages {
		m := Message{Size: randSize(r), Flags: Registered | DestRegistered}
		switch mix {
		case 0: // all the same
			m = b.Messages[0]
			if i == 0 {
				m = Message{Size: randSize(r), Flags: Registered | DestRegistered}
			}
		case 1: // two sizes
			m.Size = []int64{64, 1 << 18}[r.IntN(2)]
		case 2: // anything
			m.Flags = Flags(r.IntN(knownFlags + 1))
		}
		b.Messages[i] = m
	}
	if r.IntN(3) == 0 {
		b.Wait = [NumModes]float64{5000 * r.Float64(), 5000 * r.Float64(), 500 * r.Float64()}
	}
	return b
}

// uniform returns n registered messages of one size with known, registered
// destinations: the batches that are usually reasoned about.
func uniform(n int, size int64) []Message {
	ms := make([]Message, n)
	for i := range ms {
		ms[i] = Message{Size: size, Flags: Registered | DestRegistered}
	}
	return ms
}

// monotone says whether c never falls.
func monotone(c Curve) bool {
	if c.d != nil {
		for _, n := range c.d.nodes {
			if n.slope < 0 {
				return false
			}
		}
	}
	return true
}

// modesOf returns the modes that can carry x.
func modesOf(p *Params, l *Limits, x Message) (s ModeSet) {
	for m := range Mode(NumModes) {
		if p.Feasible(l, x, m) == nil {
			s = s.With(m)
		}
	}
	return s
}
