package bulk

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/offheap"
)

// points makes points from 64 KiB on, of cached, string and stream times.
func points(ns ...[3]float64) (all []Point) {
	for i, p := range ns {
		all = append(all, Point{Size: 64 << 10 << i, NS: p})
	}
	return all
}

func TestDecide(t *testing.T) {
	t.Parallel()
	base := Plan{String: 48 << 10, Stream: 8 << 20}
	for name, c := range map[string]struct {
		base   Plan
		points []Point
		want   Plan
	}{
		"nothing measured":          {base, nil, base},
		"string wins, stream later": {base, points([3]float64{10, 8, 20}, [3]float64{20, 15, 40}, [3]float64{90, 80, 40}), Plan{48 << 10, 256 << 10}},
		"string wins from 128K":     {base, points([3]float64{10, 12, 20}, [3]float64{20, 15, 40}), Plan{128 << 10, 8 << 20}},
		"one bad moment":            {base, points([3]float64{10, 8, 20}, [3]float64{20, 22, 40}, [3]float64{40, 30, 80}), base},
		"string loses":              {base, points([3]float64{10, 12, 20}, [3]float64{20, 25, 40}), Plan{Never, 8 << 20}},
		"within noise":              {base, points([3]float64{100, 101, 98}, [3]float64{200, 202, 198}), base},
		"stream loses at the top":   {Plan{Never, 128 << 10}, points([3]float64{10, 0, 20}, [3]float64{20, 0, 40}), Plan{Never, 256 << 10}},
		"stream later than said":    {Plan{Never, 128 << 10}, points([3]float64{10, 0, 20}, [3]float64{20, 0, 40}, [3]float64{40, 0, 20}), Plan{Never, 256 << 10}},
		"no string here":            {Plan{Never, 8 << 20}, points([3]float64{10, 0, 20}, [3]float64{20, 0, 10}), Plan{Never, 128 << 10}},
		"nothing special here":      {Plan{Never, Never}, points([3]float64{10, 0, 0}), Plan{Never, Never}},
		"never below the least":     {base, points([3]float64{10, 20, 5}, [3]float64{20, 40, 10}), Plan{Never, MinStream}},
	} {
		require.Equal(t, c.want, decide(c.base, c.points), name)
	}
}

func TestMeasure(t *testing.T) {
	t.Parallel()
	base := Plan{String: Never, Stream: Never}
	if hasString() {
		base.String = 48 << 10
	}
	if hasStream() {
		base.Stream = 8 << 20
	}
	m, err := Measure(base, time.Minute)
	require.NoError(t, err)
	require.NotEmpty(t, m.Points)
	for _, p := range m.Points {
		t.Logf("%8d %.0f", p.Size, p.NS)
		require.Positive(t, p.NS[Cached])
		require.Equal(t, hasString(), p.NS[String] > 0)
		require.Equal(t, hasStream(), p.NS[Stream] > 0)
	}
	t.Logf("%+v", m.Plan)
	require.GreaterOrEqual(t, m.Plan.Stream, uint64(MinStream))
	require.GreaterOrEqual(t, m.Plan.String, uint64(MinString))

	m, err = Measure(base, 0)
	require.NoError(t, err)
	require.Equal(t, base, m.Plan, "no time, no opinion")
	require.Empty(t, m.Points)
	require.Zero(t, offheap.InUse(offheap.Scratch), "memory stays behind")
}
