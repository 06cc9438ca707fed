package logp

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func fitSamples(r *rand.Rand, truth *Params, m Mode, n int, noise float64) []Sample {
	var out []Sample
	for len(out) < n {
		b := &Batch{Messages: uniform(1<<r.IntN(8), 1+randSize(r)), Limits: plain()}
		c, err := truth.Cost(b, m)
		if err != nil {
			continue
		}
		t := c.Total() * (1 + noise*(2*r.Float64()-1))
		if r.IntN(15) == 0 {
			t *= 5 // somebody else had the processor
		}
		out = append(out, Sample{b, t})
	}
	return out
}

// What the curves leave out is found in measured batches, noise and outliers
// notwithstanding, and predicts batches that were not measured.
func TestFitExtraFindsWhatIsMissing(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(81, 1))
	for range cases(48) {
		p := randParams(t, r)
		p.Extra, p.Scale = [NumModes]Extra{}, [NumModes]float64{}
		for m := range Mode(NumModes) {
			truth := *p
			truth.Extra[m] = Extra{Fixed: 3000 * r.Float64(), PerMessage: 800 * r.Float64(), PerByte: 0.2 * r.Float64(), PerFirst: 0.5 * r.Float64()}
			e, err := FitExtra(p, m, fitSamples(r, &truth, m, 60, 0.05))
			require.NoError(t, err)
			q := *p
			q.Extra[m] = e
			require.NoError(t, q.Validate())
			var fresh []Sample
			for _, s := range fitSamples(r, &truth, m, 60, 0) {
				c, _ := truth.Cost(s.Batch, m)
				fresh = append(fresh, Sample{s.Batch, c.Total()})
			}
			before, _, _ := predictionErrors(p, m, fresh)
			after, p95, n := predictionErrors(&q, m, fresh)
			require.Equal(t, 60, n)
			require.Less(t, after, 0.05, "%v: median error was %.2f", m, before)
			require.Less(t, p95, 0.2)
		}
	}
}

// Overlap makes batches faster than the sum of their steps; the correction is
// negative then, and still no batch is predicted to take less than nothing.
func TestFitExtraStaysPositive(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(82, 1))
	for range cases(64) {
		p := randParams(t, r)
		p.Extra, p.Scale = [NumModes]Extra{}, [NumModes]float64{}
		for m := range Mode(NumModes) {
			ss := fitSamples(r, p, m, 30, 0.1)
			for i := range ss {
				ss[i].NS *= 0.02 + 0.3*r.Float64()
			}
			e, err := FitExtra(p, m, ss)
			require.NoError(t, err)
			p.Extra[m] = e
			for range 50 {
				b := randBatch(r, 1+r.IntN(200))
				if c, err := p.Cost(b, m); err == nil {
					require.Positive(t, c.Total(), "%v %+v", m, e)
				}
			}
		}
	}
}

func TestFitExtraRefuses(t *testing.T) {
	t.Parallel()
	p := thesis(t)
	good := &Batch{Messages: uniform(1, 8), Limits: plain()}
	for _, ss := range [][]Sample{
		nil, {{good, 0}}, {{good, math.NaN()}}, {{good, -1}}, {{&Batch{}, 5}},
		{{&Batch{Messages: []Message{{Size: -1}}}, 5}}, {{&Batch{Messages: uniform(1, 8)}, 5}},
	} {
		_, err := FitExtra(p, Gather, ss)
		require.ErrorIs(t, err, ErrParams)
	}
	_, err := FitExtra(p, Mode(3), []Sample{{good, 5}})
	require.ErrorIs(t, err, ErrParams)
	// One sample is explained, though not told apart.
	e, err := FitExtra(p, Gather, []Sample{{good, 5000}})
	require.NoError(t, err)
	p.Extra[Gather] = e
	require.InEpsilon(t, 5000, total(t, p, good, Gather), 0.02)
	_, _, n := predictionErrors(p, Gather, nil)
	require.Zero(t, n)
}
