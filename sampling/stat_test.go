package sampling

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEstimate(t *testing.T) {
	var s series
	require.Zero(t, s.estimate().conf())
	s.add(100)
	require.Equal(t, 100.0, s.estimate().v)
	require.Less(t, s.estimate().conf(), 0.01, "one sample says nothing")
	for range 4 {
		s.add(100)
	}
	require.Greater(t, s.estimate().conf(), enough)
	require.Zero(t, testing.AllocsPerRun(10, func() { s.estimate() }))
}

// Noise only adds; up to half of the samples disturbed by a turn of another
// process do not move the estimate.
func TestEstimateOfDisturbedSamples(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var s series
		for i := range 20 {
			x := 1000 + 20*rng.NormFloat64()
			if i%2 == 0 {
				x += 4e6 * rng.Float64() // a time slice
			}
			s.add(x)
		}
		e := s.estimate()
		require.InDelta(t, 1000, e.v, 25)
		require.GreaterOrEqual(t, e.dropped, 8)
		require.Greater(t, e.conf(), 0.8)
	}
}

func TestSeriesKeepsTheLatest(t *testing.T) {
	var s series
	for range maxSamples {
		s.add(1)
	}
	for range maxSamples {
		s.add(2)
	}
	require.Equal(t, 2.0, s.estimate().v)
	require.Equal(t, maxSamples, s.estimate().n)
}
