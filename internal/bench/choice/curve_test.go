package choice

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/logp"
)

// times returns ns[point][round] from a function of point and round.
func times(rounds int, at func(i, r int) float64, points int) [][]float64 {
	out := make([][]float64, points)
	for i := range out {
		for r := range rounds {
			out[i] = append(out[i], at(i, r))
		}
	}
	return out
}

func TestStepAt(t *testing.T) {
	t.Parallel()
	sw := logp.Switch{Size: 1000, From: logp.Eager, To: logp.Scatter}
	sizes := []int{8, 997, 998, 999, 1000, 1001, 1002, 1003, 4096}
	side := func(i int) int { return map[bool]int{true: 1}[sizes[i] >= 1000] }

	// A third slower from the switch on, and the machine half as fast in every second
	// round: that is not noise, because it affects both sides.
	s := stepAt(sw, 4, sizes, times(6, func(i, r int) float64 { return float64(sizes[i]) * (3 + float64(side(i))) * float64(1+r%2) }, len(sizes)))
	require.Equal(t, 1000, s.Size)
	require.Equal(t, "eager", s.From)
	require.InDelta(t, -0.25, s.Step, 1e-9)
	require.InDelta(t, 0.0, s.Noise, 0.01)
	require.True(t, s.Down)
	require.InDelta(t, 4e3/3*0.75, s.Below, 1, "median of fast and slow rounds")
	require.InDelta(t, s.Below*0.75, s.Above, 1)

	// A gain in speed is not a step down.
	s = stepAt(sw, 1, sizes, times(5, func(i, _ int) float64 { return float64(3 - side(i)) }, len(sizes)))
	require.InDelta(t, 0.5, s.Step, 0.01)
	require.False(t, s.Down)

	// A loss of 1 % is within the tolerance; a loss of 10 % is within the noise where one
	// side varies by as much.
	s = stepAt(sw, 1, sizes, times(5, func(i, _ int) float64 { return float64(sizes[i]) * (100 + float64(side(i))) }, len(sizes)))
	require.False(t, s.Down)
	s = stepAt(sw, 1, sizes, times(5, func(i, _ int) float64 { return float64(sizes[i]) * (10 + float64(side(i)) + float64(i%4)/2) }, len(sizes)))
	require.Less(t, s.Step, -0.05)
	require.Greater(t, s.Noise, 0.08)
	require.False(t, s.Down)

	// No sizes on one side: no step.
	s = stepAt(logp.Switch{Size: 1}, 1, []int{1, 2}, times(2, func(int, int) float64 { return 1 }, 2))
	require.Zero(t, s.Step)
	require.False(t, s.Down)
}

func TestStandardError(t *testing.T) {
	t.Parallel()
	require.Zero(t, standardError([]float64{1, 1, 1}))
	calm := standardError([]float64{1, 1.1, 0.9, 1, 1.05, 0.95, 1})
	require.InDelta(t, calm, standardError([]float64{1, 1.1, 0.9, 1, 1.05, 0.95, 100}), calm, "one disturbed round is little")
	require.Positive(t, calm)
}

func TestCurvesReadBack(t *testing.T) {
	t.Parallel()
	cs := []Curve{{Fabric: "shm", N: 4, Rounds: 3, Points: []Point{{Size: 8, US: 1, MBs: 32, Plan: "eager×4"}, {Size: 9, US: 1, MBs: 36, Step: 0.125}},
		Steps: []Step{{Size: 9, From: "eager", To: "gather", Below: 32, Above: 24, Step: -0.25, Noise: 0.1, Down: true}}}, {Fabric: "tcp", N: 1, Points: []Point{{Size: 8}}}}
	var b bytes.Buffer
	require.NoError(t, bench.WriteLines(&b, cs))
	got, err := ReadCurves(&b)
	require.NoError(t, err)
	require.Equal(t, cs[0], got[0])
	require.True(t, got[0].Down())
	require.False(t, got[1].Down())
	b.Reset()
	require.NoError(t, WriteCurves(&b, cs))
	require.Contains(t, b.String(), "eager to gather at 9: 32 to 24 MB/s, -25.0 %, noise 10.0 %: STEP DOWN")
	require.Contains(t, b.String(), "one mode for all sizes")
	for _, bad := range []string{"{", `{"fabric":"shm"}`, `{"fabric":"shm","n":1,"points":[]}`, `{"fabric":"shm","n":1,"points":[{"size":0,"mb_s":1}]}`, `{"fabric":"shm","n":1,"points":[{"size":8},{"size":-8,"mb_s":1}]}`, "[]"} {
		_, err := ReadCurves(strings.NewReader(bad))
		require.Error(t, err, bad)
	}
}

// The plan that rank 1 receives from the wire is bounded.
func TestCurvePlanCheck(t *testing.T) {
	t.Parallel()
	require.NoError(t, (&curvePlan{Sizes: []int{1, 4096}}).check(4096))
	for _, p := range []curvePlan{{}, {Sizes: []int{0}}, {Sizes: []int{4097}}, {Sizes: make([]int, maxPoints+1)}} {
		require.ErrorIs(t, p.check(4096), ErrGrid)
	}
	for _, n := range []int{0, -1, maxN + 1} {
		r := Request{Curves: []int{n}}
		require.ErrorIs(t, r.Check(), ErrGrid)
	}
	r := Request{Curves: []int{1, 64}}
	require.NoError(t, r.Check())
	require.Equal(t, DefaultMost, r.curveMax(1))
	require.Equal(t, curveSpan/64, r.curveMax(64))
	for _, most := range []int{-1, 7, curveSpan + 1} {
		r.Most = most
		require.ErrorIs(t, r.Check(), ErrGrid)
	}
}
