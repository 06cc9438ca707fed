package choice

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMixingArithmetic(t *testing.T) {
	t.Parallel()
	rs := []Result{
		{Fabric: "tcp", Mix: "8", Modes: Modes{10, 12, 20}, AutoUS: 10, Single: "eager", Series: Series{Thresholds: fixed(20)}},
		{Fabric: "tcp", Mix: Heavy, Modes: Modes{30, 12, 11}, AutoUS: 10, Single: "gather", PlanMixes: true, Series: Series{Thresholds: fixed(5)}},
		{Fabric: "tcp", Mix: Heavy, Modes: Modes{30, 27, 20}, AutoUS: 10, Single: "gather", PlanMixes: true, Series: Series{Thresholds: fixed(10)}},
	}
	ms := SummarizeMixing(rs)
	require.Len(t, ms, 3)
	require.Equal(t, Mixing{Fabric: "tcp", Mix: "8", Cells: 1, FixedMode: "eager", OverThresholds: Gain{1, 1, 1, 1}}, ms[0], "where no plan mixes there is nothing to gain by it")
	heavy, all := ms[1], ms[2]
	require.Equal(t, "scatter", heavy.FixedMode)
	require.InDelta(t, math.Sqrt(2.2)-1, heavy.OverFixed.Mean, 1e-9, "√(1.1·2)")
	require.Equal(t, "gather", all.FixedMode, "1.2 · 1.2 · 2.7 is less than 2 · 1.1 · 2")
	require.Equal(t, 2, heavy.Mixed)
	require.InDelta(t, 0.8, heavy.OverSingle.Mean, 1e-9, "√(1.2·2.7) = 1.8")
	require.InDelta(t, 0.2, heavy.OverSingle.Least, 1e-9)
	require.InDelta(t, 1.7, heavy.OverSingle.Most, 1e-9)
	require.InDelta(t, 0.1, heavy.OverBest.Least, 1e-9)
	require.InDelta(t, 1.0, heavy.OverBest.Most, 1e-9)
	require.Equal(t, 3, all.Cells)
	require.Equal(t, heavy.OverSingle, all.OverSingle)
	require.InDelta(t, 0, all.OverThresholds.Mean, 1e-9, "2 · 0.5 · 1")
	require.InDelta(t, 0, all.OverThresholds.Median, 1e-9)
	var b bytes.Buffer
	require.NoError(t, WriteMixing(&b, ms))
	require.Contains(t, b.String(), "+80.0 % (median +95.0, +20.0 … +170.0)")
}

func TestFixedThresholdsAreRules(t *testing.T) {
	t.Parallel()
	for _, fabric := range []string{"shm", "tcp", "verbs"} {
		p := fixedThresholds(fabric)
		require.NoError(t, p.Validate())
		require.False(t, p.Forced)
	}
}

// Cells of random sizes are drawn with every seed, others are played once.
func TestSeeds(t *testing.T) {
	t.Parallel()
	r := Request{Grid: Grid{N: []int{2}, Mixes: []string{"8", Heavy, Huge}}, Seed: 5, Seeds: 3}
	require.NoError(t, r.Check())
	require.Equal(t, []Drawn{
		{Cell{N: 2, Mix: "8"}, 5}, {Cell{N: 2, Mix: Heavy}, 5}, {Cell{N: 2, Mix: Huge}, 5}, {Cell{N: 2, Mix: Heavy}, 6}, {Cell{N: 2, Mix: Huge}, 6}, {Cell{N: 2, Mix: Heavy}, 7}, {Cell{N: 2, Mix: Huge}, 7},
	}, r.Cells())
	r.Seeds = maxSeeds + 1
	require.ErrorIs(t, r.Check(), ErrGrid)
}
