package logp

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// meanError is the mean of |predicted/measured − 1|, none counting for more than 1.
func meanError(t *testing.T, p *Params, m Mode, samples []Sample) (sum float64) {
	t.Helper()
	for _, s := range samples {
		c, err := p.Cost(s.Batch, m)
		require.NoError(t, err)
		x := c.Total()/s.NS - 1
		sum += min(max(x, -x), 1)
	}
	return sum / float64(len(samples))
}

// However few the samples are and whatever they miss: batches that were not
// measured are predicted no worse with the fit than without, but for what the
// samples' own noise may hide; and with many samples much better.
func TestHeldOutFitIsNeverWorseThanNone(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(91, 1))
	for _, n := range []int{1, 2, 4, 5, 6, 8, 12, 20, 40} {
		before, after, worse := 0.0, 0.0, 0.0
		const runs = 60
		for range runs {
			p := randParams(t, r)
			p.Extra, p.Scale = [NumModes]Extra{}, [NumModes]float64{}
			m := Mode(r.IntN(NumModes))
			truth := *p
			if r.IntN(3) > 0 { // else there is nothing to find
				truth.Extra[m] = Extra{Fixed: 3000 * r.Float64(), PerMessage: 800 * r.Float64(), PerByte: 0.2 * r.Float64(), PerFirst: 0.5 * r.Float64()}
			}
			h, err := FitExtraHeldOut(p, m, fitSamples(r, &truth, m, n, 0.1))
			require.NoError(t, err)
			require.Equal(t, n, h.Rows)
			require.LessOrEqual(t, h.Terms, max(0, n-4)/2)
			require.LessOrEqual(t, h.After, h.Before)
			q := *p
			q.Extra[m] = h.Extra
			require.NoError(t, q.Validate())
			fresh := fitSamples(r, &truth, m, 60, 0)
			b, a := meanError(t, p, m, fresh), meanError(t, &q, m, fresh)
			before, after = before+b/runs, after+a/runs
			if a > b+0.05 {
				worse += 1. / runs
			}
		}
		t.Logf("%2d samples: mean error %.3f without, %.3f with; %.0f %% are worse by 0.05", n, before, after, 100*worse)
		require.LessOrEqual(t, after, before)
		require.LessOrEqual(t, worse, 0.05)
		if n >= 20 {
			require.Less(t, after, 0.75*before)
			require.Zero(t, worse)
		}
	}
}

// A model that is right stays as it is.
func TestHeldOutFitFindsNothingInNoise(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(92, 1))
	for range 60 {
		p := randParams(t, r)
		p.Extra, p.Scale = [NumModes]Extra{}, [NumModes]float64{}
		m := Mode(r.IntN(NumModes))
		samples := fitSamples(r, p, m, 20, 0.05)
		h, err := FitExtraHeldOut(p, m, samples)
		require.NoError(t, err)
		q := *p
		q.Extra[m] = h.Extra
		fresh := fitSamples(r, p, m, 60, 0)
		require.Less(t, meanError(t, &q, m, fresh), 0.13, "%+v", h) // a fifteenth of the fresh ones is off by 0.8
	}
	// What was known before is kept, and measured against, unless it is wrong.
	p := thesis(t)
	p.Extra[Scatter] = Extra{Fixed: 5000, PerMessage: 300}
	h, err := FitExtraHeldOut(p, Scatter, fitSamples(r, p, Scatter, 20, 0.05))
	require.NoError(t, err)
	require.Equal(t, p.Extra[Scatter], h.Extra)
	require.Less(t, h.Before, 0.3)
	require.Equal(t, h.Before, h.After)
	h, err = FitExtraHeldOut(p, Scatter, fitSamples(r, thesis(t), Scatter, 20, 0))
	require.NoError(t, err)
	require.Less(t, h.After, h.Before/2)
	require.Less(t, h.Extra.Fixed, 1000.)
	_, err = FitExtraHeldOut(thesis(t), NumModes, nil)
	require.ErrorIs(t, err, ErrParams)
	_, err = FitExtraHeldOut(thesis(t), Gather, nil)
	require.ErrorIs(t, err, ErrParams)
}

func BenchmarkFitHeldOut(b *testing.B) {
	r := rand.New(rand.NewPCG(93, 1))
	p := thesis(b)
	truth := *p
	truth.Extra[Gather] = Extra{Fixed: 3000, PerMessage: 100}
	samples := fitSamples(r, &truth, Gather, 22, 0.05)
	for b.Loop() {
		if _, err := FitExtraHeldOut(p, Gather, samples); err != nil {
			b.Fatal(err)
		}
	}
}
