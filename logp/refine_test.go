package logp

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// leastShare is the part of a prediction that one mode must make up for the error to be
// blamed on it.
const leastShare = 0.75

// Observe takes note that batch b, moved in parts, took ns. It returns true when
// Params has changed by it; hand them to Planner.SetParams then. Samples that
// cannot be (negative, NaN, longer than MaxNS) and batches in which no mode makes
// up most of the time are not learned from. Parts are those of a plan of b. It does
// not allocate.
func (r *Refiner) Observe(b *Batch, parts []Part, ns float64) bool {
	t := tally{p: &r.p, b: b}
	for k := range parts {
		t.begin(parts[k].Mode)
		for _, i := range parts[k].Messages {
			t.add(int(i))
		}
		t.end()
	}
	c := t.cost()
	total := c.Total()
	for m := range Mode(NumModes) {
		mine := r.p.scale(m) * t.load[m]
		if mine > 0 && mine >= leastShare*math.Abs(total) {
			return r.learn(m, ns-(total-mine), t.load[m], ns)
		}
	}
	return false
}

// Drift returns the modes that should be sampled again.
func (r *Refiner) Drift() (s ModeSet) {
	for m := range Mode(NumModes) {
		if r.mode[m].drift {
			s = s.With(m)
		}
	}
	return s
}

func refiner(tb testing.TB, p *Params) *Refiner {
	r, err := NewRefiner(p)
	require.NoError(tb, err)
	return r
}

func part(m Mode, n int) []Part {
	idx := make([]int32, n)
	for i := range idx {
		idx[i] = int32(i)
	}
	return []Part{{Mode: m, Messages: idx}}
}

// A link that is k times slower is learned to be, and its drift seen.
func TestRefinerLearns(t *testing.T) {
	t.Parallel()
	for _, k := range []float64{0.6, 0.9, 1, 1.1, 1.7, 3} {
		p := thesis(t)
		p.G = 0 // of which the first is a credit that no factor covers
		r, b := refiner(t, p), &Batch{Messages: uniform(4, 500), Limits: plain()}
		truth := total(t, p, b, Gather)
		for range 200 {
			r.Observe(b, part(Gather, 4), k*truth)
		}
		l := r.Learned(Gather)
		require.InEpsilon(t, k, l.Factor, 0.01)
		require.Equal(t, uint64(200), l.Samples)
		q := r.Params()
		require.InEpsilon(t, k, q.scale(Gather), 0.04, "published")
		require.Zero(t, q.Scale[Eager])
		require.Equal(t, math.Abs(math.Log(k)) > 0.25, l.Drift, "%v", k)
		require.Equal(t, l.Drift, r.Drift().Has(Gather))
		require.False(t, r.Drift().Has(Eager))
		for range 200 {
			r.Observe(b, part(Gather, 4), truth)
		}
		require.False(t, r.Learned(Gather).Drift, "back to normal")
	}
}

// Whatever one sample says, the factor stays where those around it put it.
func TestOneBadSampleHasNoWeight(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(51, 1))
	for range cases(300) {
		p := thesis(t)
		p.G = 0
		r, b := refiner(t, p), &Batch{Messages: uniform(4, 500), Limits: plain()}
		truth := total(t, p, b, Gather)
		low, high := 1.0, 1.0 // of good samples, and the start
		bad := rnd.IntN(50)
		for i := range 100 {
			k := 0.9 + 0.3*rnd.Float64()
			if i == bad {
				k = math.Exp(40*rnd.Float64() - 20)
			} else {
				low, high = min(low, k), max(high, k)
			}
			r.Observe(b, part(Gather, 4), k*truth)
			f := r.Learned(Gather).Factor
			require.GreaterOrEqual(t, f, low*(1-1e-9))
			require.LessOrEqual(t, f, high*(1+1e-9))
		}
	}
}

// A burst of bad samples flips the choice, if at all, for no longer than a
// bounded number of good ones.
func TestChoiceComesBack(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(52, 1))
	for range 200 {
		p := randParams(t, rnd)
		p.Scale, p.Extra = [NumModes]float64{}, [NumModes]Extra{}
		b := &Batch{Messages: uniform(1+rnd.IntN(20), 1+randSize(rnd)%4000), Limits: plain()}
		d, err := p.Choose(b)
		require.NoError(t, err)
		// Only where the choice is not within the noise anyway.
		sure := true
		for m := range Mode(NumModes) {
			sure = sure && (m == d.Mode || d.Costs[m].Total() > 1.15*d.Costs[d.Mode].Total())
		}
		if !sure {
			continue
		}
		r := refiner(t, p)
		n := len(b.Messages)
		feed := func(k float64, times int) {
			for range times {
				for m := range Mode(NumModes) {
					r.Observe(b, part(m, n), k*d.Costs[m].Total())
				}
			}
		}
		feed(1, 20)
		for range rnd.IntN(4) { // the chosen mode looks bad, a few times
			r.Observe(b, part(d.Mode, n), 1000*d.Costs[d.Mode].Total())
		}
		feed(1, 40)
		q := r.Params()
		e, err := q.Choose(b)
		require.NoError(t, err)
		require.Equal(t, d.Mode, e.Mode)
	}
}

// Only the chosen mode is ever measured, so a mode that a disturbance made look
// slow is not seen to have recovered. It is tried again all the same.
func TestAvoidedModeIsTriedAgain(t *testing.T) {
	t.Parallel()
	p := thesis(t)
	b := &Batch{Messages: uniform(2, 200), Limits: plain()}
	d, err := p.Choose(b)
	require.NoError(t, err)
	require.Equal(t, Gather, d.Mode)
	r := refiner(t, p)
	step := func(slow float64) Mode {
		q := r.Params()
		e, err := q.Choose(b)
		require.NoError(t, err)
		k := 1.0
		if e.Mode == Gather {
			k = slow
		}
		r.Observe(b, part(e.Mode, 2), k*d.Costs[e.Mode].Total())
		return e.Mode
	}
	for i := 0; step(4) == Gather; i++ { // disturbed until it is avoided
		require.Less(t, i, 200)
	}
	i := 0
	for ; step(1) != Gather; i++ {
		require.Less(t, i, 2000, "never tried again")
	}
	for range 100 {
		require.Equal(t, Gather, step(1), "and stays chosen, being good")
	}
}

func TestRefinerRefuses(t *testing.T) {
	t.Parallel()
	p := thesis(t)
	p.Scale[Eager] = 1.2
	r, b := refiner(t, p), &Batch{Messages: uniform(4, 500), Limits: plain()}
	for _, x := range []float64{0, -1, math.NaN(), math.Inf(1), math.Inf(-1), 2 * MaxNS} {
		require.False(t, r.Observe(b, part(Eager, 4), x))
	}
	require.Equal(t, Learned{Factor: 1.2, Refused: 6}, r.Learned(Eager))
	require.False(t, r.Observe(&Batch{}, nil, 5), "nothing was sent")
	// Half eager, half gather: nobody is to blame.
	b.Messages = uniform(4, 1<<18)
	parts := []Part{{Eager, []int32{0, 1}}, {Gather, []int32{2, 3}}}
	before := *r
	r.Observe(b, parts, 1e6)
	require.Equal(t, before, *r)
	bad := *p
	bad.G = -1
	_, err := NewRefiner(&bad)
	require.ErrorIs(t, err, ErrParams)
}

// Published factors are always valid parameters, and move seldom.
func TestRefinerPublishes(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(53, 1))
	r, b := refiner(t, thesis(t)), &Batch{Messages: uniform(4, 500), Limits: plain()}
	truth := total(t, thesis(t), b, Eager)
	changes := 0
	for range 5000 { // ±20 % noise
		if r.Observe(b, part(Eager, 4), truth*(0.8+0.4*rnd.Float64())) {
			changes++
		}
		p := r.Params()
		require.NoError(t, p.Validate())
	}
	require.Less(t, changes, 500)
	require.InEpsilon(t, 1, r.Learned(Eager).Factor, 0.1)
	for _, x := range []float64{1e-9, MaxNS} {
		for range 300 {
			r.Observe(b, part(Eager, 4), x)
		}
		p := r.Params()
		require.NoError(t, p.Validate())
		require.True(t, r.Learned(Eager).Drift)
	}
}

func TestObserveAllocatesNothing(t *testing.T) {
	r, b := refiner(t, thesis(t)), &Batch{Messages: uniform(64, 500), Limits: usual()}
	parts := part(Eager, 64)
	require.Zero(t, testing.AllocsPerRun(100, func() { r.Observe(b, parts, 1e5) }))
}
