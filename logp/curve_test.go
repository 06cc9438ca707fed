package logp

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// slow is At by its definition.
func slow(ps []Point, m int64) float64 {
	if len(ps) == 0 {
		return 0
	}
	m = max(m, 0)
	if m <= ps[0].Size {
		return ps[0].NS
	}
	for i := 1; i < len(ps); i++ {
		if a, b := ps[i-1], ps[i]; m <= b.Size {
			return a.NS + (b.NS-a.NS)*float64(m-a.Size)/float64(b.Size-a.Size)
		}
	}
	last := ps[len(ps)-1]
	if len(ps) == 1 {
		return last.NS
	}
	a := ps[len(ps)-2]
	return last.NS + max(0, (last.NS-a.NS)/float64(last.Size-a.Size))*float64(m-last.Size)
}

func TestCurveAgainstDefinition(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range cases(200) {
		var ps []Point
		x := int64(r.IntN(3))
		for range 1 + r.IntN(MaxPoints) {
			ps = append(ps, Point{Size: x, NS: 1e6 * r.Float64(), Conf: r.Float64()})
			if x += 1 + int64(r.IntN(1<<r.IntN(28))); x > MaxSize {
				break
			}
		}
		c := mustCurve(t, ps...)
		probe := func(m int64) {
			want := slow(ps, m)
			require.InDelta(t, want, c.At(m), 1e-6+1e-9*math.Abs(want), "at %d of %v", m, ps)
		}
		for _, m := range []int64{math.MinInt64, -1, 0, 1, MaxSize, 2 * MaxSize} {
			probe(m)
		}
		for _, p := range ps {
			probe(p.Size - 1)
			probe(p.Size)
			probe(p.Size + 1)
		}
		for range 50 {
			probe(r.Int64N(2*ps[len(ps)-1].Size + 2))
		}
	}
}

func TestCurveRefuses(t *testing.T) {
	t.Parallel()
	long := make([]Point, MaxPoints+1)
	for i := range long {
		long[i].Size = int64(i)
	}
	for _, ps := range [][]Point{
		{{Size: -1}}, {{Size: MaxSize + 1}}, {{Size: 1}, {Size: 1}}, {{Size: 2}, {Size: 1}},
		{{NS: -1}}, {{NS: math.NaN()}}, {{NS: math.Inf(1)}}, {{NS: 2 * MaxNS}},
		{{Conf: -0.1}}, {{Conf: 1.1}}, {{Conf: math.NaN()}}, long,
	} {
		_, err := NewCurve(ps)
		require.ErrorIs(t, err, ErrCurve, "%v", ps)
	}
	c, err := NewCurve(nil)
	require.NoError(t, err)
	require.False(t, c.Known())
	require.Zero(t, c.At(5))
	require.Zero(t, c.Confidence(5))
}

func TestCurveKeepsNothingOfItsInput(t *testing.T) {
	t.Parallel()
	ps := []Point{{0, 1, 1}, {10, 2, 1}}
	c := mustCurve(t, ps...)
	ps[1].NS = 99
	c.Points()[0].NS = 99
	require.Equal(t, 2.0, c.At(10))
	require.Equal(t, []Point{{0, 1, 1}, {10, 2, 1}}, c.Points())
}

func TestConfidence(t *testing.T) {
	t.Parallel()
	c := mustCurve(t, Point{8, 1, 0.5}, Point{16, 2, 1})
	require.InDelta(t, 0.5, c.Confidence(0), 1e-12)
	require.InDelta(t, 0.75, c.Confidence(12), 1e-12)
	require.InDelta(t, 1, c.Confidence(16), 1e-12)
	require.InDelta(t, 0.25, c.Confidence(64), 1e-12)
}

func TestSumOfCurves(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	a, b := grid(t, r, 100, 1), mustCurve(t, Point{100, 7, 1}, Point{3000, 9, 1}, Point{5000, 1, 1})
	s := sum(a, b, Curve{}, b)
	for range 2000 {
		m := r.Int64N(1 << r.IntN(30))
		want := a.At(m) + 2*b.At(m)
		require.InDelta(t, want, s.At(m), 1e-9*(1+want), "at %d", m)
	}
	require.False(t, sum().Known())
	require.False(t, sum(Curve{}, Curve{}).Known())
}

func TestFitMonotone(t *testing.T) {
	t.Parallel()
	c, err := FitMonotone([]Point{{4, 5, 1}, {1, 3, 1}, {2, 1, 1}, {8, 9, 0.5}, {8, 3, 0.5}})
	require.NoError(t, err)
	require.Equal(t, []Point{{1, 2, 1}, {2, 2, 1}, {4, 5, 1}, {8, 6, 0.5}}, c.Points())

	r := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		var ps []Point
		for range r.IntN(60) {
			ps = append(ps, Point{Size: r.Int64N(100), NS: 1000 * r.Float64(), Conf: r.Float64()})
		}
		c, err := FitMonotone(ps)
		require.NoError(t, err)
		require.True(t, monotone(c))
		again, err := FitMonotone(c.Points())
		require.NoError(t, err)
		for i, p := range again.Points() { // a fit is its own fit
			require.InDelta(t, c.Points()[i].NS, p.NS, 1e-9)
		}
	}
	for _, p := range []Point{{0, math.NaN(), 1}, {0, -1, 1}, {0, 1, 2}, {-1, 1, 1}} {
		_, err := FitMonotone([]Point{p})
		require.ErrorIs(t, err, ErrCurve)
	}
}

// A sample of high confidence is hardly moved by one of low confidence.
func TestFitWeighs(t *testing.T) {
	t.Parallel()
	c, err := FitMonotone([]Point{{1, 1000, 0.01}, {2, 100, 1}})
	require.NoError(t, err)
	require.InDelta(t, 109, c.At(2), 1)
}

func TestCurveJSON(t *testing.T) {
	t.Parallel()
	c := grid(t, rand.New(rand.NewPCG(7, 8)), 10, 1)
	b, err := json.Marshal(c)
	require.NoError(t, err)
	var back Curve
	require.NoError(t, json.Unmarshal(b, &back))
	require.Equal(t, c.Points(), back.Points())
	for _, bad := range []string{`{}`, `[{"size":1},{"size":1}]`, `[{"ns":-1}]`, `[{"size":1e99}]`, `"x"`, `[{"size":0.5}]`} {
		require.ErrorIs(t, back.UnmarshalJSON([]byte(bad)), ErrCurve, bad)
	}
	require.Equal(t, c.Points(), back.Points(), "a refused value changes nothing")
}

func TestAtAllocatesNothing(t *testing.T) {
	c := grid(t, rand.New(rand.NewPCG(9, 9)), 10, 1)
	var s float64
	require.Zero(t, testing.AllocsPerRun(100, func() { s += c.At(12345) }))
}

func BenchmarkCurveAt(b *testing.B) {
	c := grid(b, rand.New(rand.NewPCG(9, 9)), 10, 1)
	var sizes [256]int64
	r := rand.New(rand.NewPCG(1, 1))
	for i := range sizes {
		sizes[i] = randSize(r)
	}
	var s float64
	for i := 0; b.Loop(); i++ {
		s += c.At(sizes[i&255])
	}
	_ = s
}
