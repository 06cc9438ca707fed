package logp

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSenderSees(t *testing.T) {
	t.Parallel()
	p := thesis(t)
	l := plain()
	b := &Batch{Messages: uniform(8, 64), Limits: l}
	copies := 0.0
	if l.copied(b.Messages[0]) {
		copies = 8 * p.C.At(64)
	}
	near := func(want float64, m Mode) {
		t.Helper()
		got, err := p.SenderSees(b, m)
		require.NoError(t, err)
		require.InEpsilon(t, want, got, 1e-9)
	}
	near(p.CPU.A+8*p.CPU.B+8*p.Os.At(64)+7*p.G+copies+p.Lh, Eager)
	if l.staged(b.Messages[0]) {
		copies = 8 * p.C.At(64)
	} else {
		copies = 0
	}
	near(p.CPU.A+p.CPU.B+p.Os.At(8*64+8*int64(l.Segment)+int64(l.Header))+copies+p.Lh, Gather)
	near(total(t, p, b, Scatter)+p.Os.At(0)+p.G+p.Ls, Scatter)

	// What was learned, and waits, are not in it.
	want, err := p.SenderSees(b, Scatter)
	require.NoError(t, err)
	p.Scale = [NumModes]float64{2, 2, 2}
	b.Wait = [NumModes]float64{100, 200, 4000}
	near(want, Scatter)
	b.Limits.GatherMax = 64
	_, err = p.SenderSees(b, Gather)
	require.ErrorIs(t, err, ErrInfeasible)
}

// sight plays a sender: what it sees is the model's share, times what is wrong with
// the model, times what happens to the link.
type sight struct {
	o     *Observer
	pl    *Planner
	wrong [NumModes]float64
	slow  [NumModes]float64
}

func newSight(t *testing.T, p *Params) *sight {
	o, err := NewObserver(p)
	require.NoError(t, err)
	pl, err := NewPlanner(p, nil)
	require.NoError(t, err)
	return &sight{o, pl, [NumModes]float64{1, 1, 1}, [NumModes]float64{1, 1, 1}}
}

// send sends batch b the best way and observes it; noise is a factor. It returns
// the way.
func (s *sight) send(t *testing.T, b *Batch, noise float64) Mode {
	t.Helper()
	plan, err := s.pl.Plan(b)
	require.NoError(t, err)
	m := plan.Parts[0].Mode
	chosen := m
	if try, ok := s.o.Try(b, plan.Total); ok {
		m = try
	}
	ns, err := s.o.r.p.SenderSees(b, m)
	require.NoError(t, err)
	if s.o.Observe(b, m, ns*s.wrong[m]*s.slow[m]*noise) {
		p := s.o.Refiner().Params()
		require.NoError(t, s.pl.SetParams(&p))
	}
	return chosen
}

// A mode in which the link becomes four times as slow is left after a bounded
// number of samples, and taken again when it has recovered; however wrong the model
// is about it.
func TestObserverFollowsTheLink(t *testing.T) {
	t.Parallel()
	for _, wrong := range []float64{0.3, 1, 3} {
		p := thesis(t)
		b := &Batch{Messages: uniform(2, 64), Limits: plain()}
		s := newSight(t, p)
		d, err := p.Choose(b)
		require.NoError(t, err)
		best := d.Mode
		s.wrong[best] = wrong
		for range 200 {
			require.Equal(t, best, s.send(t, b, 1))
		}
		require.Zero(t, s.o.Refiner().Params().Scale, "nothing has changed")
		s.slow[best] = 8
		n := 0
		for ; s.send(t, b, 1) == best; n++ {
			require.Less(t, n, 60)
		}
		t.Logf("model off by %v: left after %d samples", wrong, n)
		for range 500 {
			s.send(t, b, 1)
		}
		taken := 0
		for range 500 {
			if s.send(t, b, 1) == best {
				taken++
			}
		}
		require.Less(t, taken, 50, "in a bad time it is tried, not used")
		require.True(t, s.o.Refiner().Drift().Has(best))
		s.slow[best] = 1
		for n = 0; s.send(t, b, 1) != best; n++ {
			require.Less(t, n, 100)
		}
		t.Logf("model off by %v: taken again after %d samples", wrong, n)
		for range 300 {
			s.send(t, b, 1)
		}
		for range 100 {
			require.Equal(t, best, s.send(t, b, 1))
		}
		require.Zero(t, s.o.Refiner().Drift())
	}
}

// Whatever one sample in five says, and whatever the noise of the others: the choice
// stays.
func TestObserverIgnoresOutliers(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(61, 1))
	p := thesis(t)
	b := &Batch{Messages: uniform(2, 64), Limits: plain()}
	s := newSight(t, p)
	d, err := p.Choose(b)
	require.NoError(t, err)
	for range 20_000 {
		noise := 0.9 + 0.3*r.Float64()
		if r.IntN(5) == 0 {
			noise *= 1 + 1000*r.Float64()
		}
		require.Equal(t, d.Mode, s.send(t, b, noise))
		require.InDelta(t, 1, s.o.Refiner().Learned(d.Mode).Factor, 0.1)
	}
	require.Zero(t, s.o.Refiner().Drift())
	for _, ns := range []float64{0, -1, 2 * MaxNS} {
		require.False(t, s.o.Observe(b, Gather, ns))
	}
	require.Equal(t, uint64(3), s.o.Refiner().Learned(Gather).Refused)
}

// A time that was bad when the program began does not make what follows look good.
func TestObserverThatBeganInABadTime(t *testing.T) {
	t.Parallel()
	p := thesis(t)
	b := &Batch{Messages: uniform(2, 64), Limits: plain()}
	s := newSight(t, p)
	best := s.send(t, b, 1)
	s.slow[best] = 6
	for range 100 {
		s.send(t, b, 1)
	}
	s.slow[best] = 1
	for range 300 {
		s.send(t, b, 1)
		require.Greater(t, s.o.Refiner().Learned(best).Factor, 0.8)
	}
	require.InDelta(t, 1, s.o.Refiner().Learned(best).Factor, 0.05)
	s.slow[best] = 8
	for n := 0; s.send(t, b, 1) == best; n++ {
		require.Less(t, n, 120, "and a bad time is seen as before")
	}
}

func TestObserverAllocatesNothing(t *testing.T) {
	p := thesis(t)
	b := &Batch{Messages: uniform(64, 64), Limits: plain()}
	o, err := NewObserver(p)
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		o.Observe(b, Gather, 3000)
		o.Try(b, 1000)
	}))
}
