package choice

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/logp"
)

func TestGridsAreWhatTheySay(t *testing.T) {
	t.Parallel()
	g := Default()
	require.NoError(t, g.Check())
	cs := g.Cells(1)
	require.Len(t, cs, 79, "8 × 10 less 128 × 1M")
	require.NotContains(t, cs, Cell{N: 128, Mix: "1M"})
	small := Small()
	require.NoError(t, small.Check())
	require.NotContains(t, small.Cells(1), Cell{N: 64, Mix: "256K"})
	for _, c := range append(cs, small.Cells(1)...) {
		a, err := c.Sizes(7)
		require.NoError(t, err)
		require.Len(t, a, c.N)
		b, err := c.Sizes(7)
		require.NoError(t, err)
		require.Equal(t, a, b, "the same seed, the same sizes")
		for _, n := range a {
			require.True(t, n >= 8 && n <= 1<<20)
		}
	}
}

func TestMixes(t *testing.T) {
	t.Parallel()
	count := func(c Cell, seed uint64) map[int]int {
		s, err := c.Sizes(seed)
		require.NoError(t, err)
		m := map[int]int{}
		for _, n := range s {
			m[n]++
		}
		return m
	}
	require.Equal(t, map[int]int{4096: 16}, count(Cell{N: 16, Mix: "4K"}, 1))
	require.Equal(t, map[int]int{64: 31, 1 << 20: 1}, count(Cell{N: 32, Mix: Huge}, 1))
	m := count(Cell{N: 128, Mix: Bimodal}, 1)
	require.Len(t, m, 2)
	require.True(t, m[64] > 32 && m[16<<10] > 32, "%v", m)
	heavy := count(Cell{N: 128, Mix: Heavy}, 1)
	require.Greater(t, len(heavy), 64)
	below := 0
	for n, k := range heavy {
		if n < 256 {
			below += k
		}
	}
	require.Greater(t, below, 64, "most are small")
	require.NotEqual(t, count(Cell{N: 128, Mix: Heavy}, 1), count(Cell{N: 128, Mix: Heavy}, 2))
}

func TestParseGrid(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "grid.json")
	write := func(s string) { require.NoError(t, os.WriteFile(name, []byte(s), 0o600)) }
	write(`{"n":[1,3],"mixes":["100","huge"],"bytes":2000000}`)
	g, err := ParseGrid(name, false)
	require.NoError(t, err)
	require.Equal(t, []Cell{{N: 1, Mix: "100"}, {N: 3, Mix: "100"}, {N: 1, Mix: "huge"}, {N: 3, Mix: "huge"}}, g.Cells(1))
	for _, bad := range []string{``, `{}`, `{"n":[0],"mixes":["8"]}`, `{"n":[1000],"mixes":["8"]}`, `{"n":[1],"mixes":["fat"]}`, `{"n":[1],"mixes":["8"],"x":1}`,
		`{"n":[1],"mixes":["8"],"bytes":-1}`, `{"n":[2],"mixes":["4K"],"bytes":4096}`, `{"n":[1],"mixes":["8:64"]}`} {
		write(bad)
		_, err := ParseGrid(name, false)
		require.ErrorIs(t, err, ErrGrid, bad)
	}
	_, err = ParseGrid(name+".none", false)
	require.ErrorIs(t, err, ErrGrid)
}

func TestParseBatch(t *testing.T) {
	t.Parallel()
	got, err := ParseBatch("2x128, 1M,1x7")
	require.NoError(t, err)
	require.Equal(t, []int{128, 128, 1 << 20, 7}, got)
	for _, bad := range []string{"", "x8", "0x8", "-1x8", "2x", "8,", "1000x8", "2x1:8", "1.5x8", "1G", "+2x8", "128x8M"} {
		_, err := ParseBatch(bad)
		require.ErrorIs(t, err, ErrGrid, bad)
	}
}

func TestRequestChecks(t *testing.T) {
	t.Parallel()
	ok := func() Request { return Request{Grid: Small()} }
	r := ok()
	require.NoError(t, r.Check())
	require.Equal(t, DefaultRounds, r.Rounds)
	require.Equal(t, DefaultTime, r.Time)
	for _, f := range []func(*Request){
		func(r *Request) { r.Rounds = -1 }, func(r *Request) { r.Rounds = 1001 }, func(r *Request) { r.Time = -1 }, func(r *Request) { r.Budget = -1 },
		func(r *Request) { r.Sampling = time.Hour }, func(r *Request) { r.Stall = -1 }, func(r *Request) { r.Calibration = -1 }, func(r *Request) { r.Grid.N = nil },
		func(r *Request) { r.Batch = []int{-1} }, func(r *Request) { r.Batch = make([]int, maxN+1) }, func(r *Request) { r.Batch = []int{maxBytes, 1} },
		func(r *Request) { r.Table = "4K=fast" }, func(r *Request) { r.Table, r.Op = "4K=eager", OpPut },
	} {
		r := ok()
		f(&r)
		require.ErrorIs(t, r.Check(), ErrGrid, "%+v", r)
	}
}

// fixed is a series with the same time in each round.
func fixed(us float64) []float64 { return []float64{us, us, us, us, us, us, us} }

func TestResultArithmetic(t *testing.T) {
	t.Parallel()
	r := Result{Predicted: Modes{12, 8, 10}, PredictedAuto: 8.1, Plan: "gather×1 + scatter×1", plans: [3]string{"eager×2", "gather×2", "scatter×2"},
		Series: Series{Eager: fixed(10), Gather: fixed(8), Scatter: fixed(20), Auto: fixed(9), Again: fixed(7.6), AgainOf: "gather"}}
	r.fill()
	require.Equal(t, Modes{10, 8, 20}, r.Modes)
	require.Equal(t, "gather", r.Best)
	require.InDelta(t, 0.125, r.Regret, 1e-12)
	require.InDelta(t, 0.05, r.Noise, 1e-12)
	require.InDelta(t, 0.2, r.Error.Eager, 1e-12)
	require.InDelta(t, 0, r.Error.Gather, 1e-12)
	require.InDelta(t, -0.5, r.Error.Scatter, 1e-12)
	require.InDelta(t, -0.1, r.ErrorAuto, 1e-12)
	require.InDelta(t, -0.1, r.VsEager(), 1e-12)
	require.Nil(t, r.Choosing, "no forced mode does that")
	require.Equal(t, Interval{r.Regret, r.Regret}, r.Regret95, "rounds that do not differ")

	// The cost of choosing the right mode is not noise.
	r.Plan = "gather×2"
	r.fill()
	require.InDelta(t, 0.05, r.Noise, 1e-12)
	require.InDelta(t, 0.125, *r.Choosing, 1e-12)
	require.InDelta(t, 0.125, r.Regret, 1e-12)
	// The time of a series is that of undisturbed rounds.
	r.Series.Auto = []float64{90, 9, 90, 9, 90, 90, 90}
	r.fill()
	require.InDelta(t, 9, r.AutoUS, 1e-12)
	require.InDelta(t, 0.125, r.Regret95.Lo, 1e-12)
	require.Greater(t, r.Regret95.Hi, 1.0)
}

// Rounds that vary together give the same interval of the regret as constant ones.
func TestIntervalsKeepRoundsTogether(t *testing.T) {
	t.Parallel()
	rise := func(us float64) []float64 { return []float64{us, 2 * us, 3 * us, 4 * us, 5 * us, 6 * us, 7 * us} }
	s := Series{Eager: rise(10), Gather: rise(20), Scatter: rise(30), Auto: rise(11)}
	i := s.sample().Regret95()
	require.InDelta(t, 0.1, i.Lo, 1e-9)
	require.InDelta(t, 0.1, i.Hi, 1e-9)
	require.Equal(t, Interval{}, (&Series{}).sample().Regret95(), "a file without rounds")
	require.Equal(t, Interval{}, (&Series{Eager: rise(1), Gather: rise(1), Scatter: rise(1), Auto: rise(1)[:3]}).sample().Regret95())

	// Half of the cells vary about the limit, the others are far below it.
	at := Result{Series: Series{Eager: fixed(10), Gather: fixed(20), Scatter: fixed(30), Auto: []float64{10.5, 11.5, 10.5, 11.5, 11.5, 11.5, 11.5}}}
	below := Result{Series: Series{Eager: fixed(10), Gather: fixed(20), Scatter: fixed(30), Auto: fixed(10)}}
	mean, within := summary95([]Sample{at.Series.sample(), below.Series.sample()})
	require.Equal(t, Interval{0.5, 1}, within)
	require.InDelta(t, 0.025, mean.Lo, 1e-9)
	require.InDelta(t, 0.075, mean.Hi, 1e-9)
}

func TestSummary(t *testing.T) {
	t.Parallel()
	require.Equal(t, Summary{Summary: true}, Summarize(nil))
	cost := []float64{0.1, -0.01}
	rs := []Result{
		{Fabric: "shm", Modes: Modes{10, 20, 30}, AutoUS: 11, Regret: 0.10, Noise: 0.02, Choosing: &cost[0], Error: Modes{0.1, -0.3, 9}, Mixed: []string{"scatter"}, ErrorAuto: -0.1},
		{Fabric: "shm", Modes: Modes{20, 10, 30}, AutoUS: 10, Regret: 0, Noise: 0.01, Choosing: &cost[1], Error: Modes{-0.2, 0.4, 0.5}, ErrorAuto: 0.2},
		{Fabric: "shm", Modes: Modes{20, 10, 30}, AutoUS: 11.1, Regret: 0.11, Noise: 0.01, Error: Modes{0.3, 0.1, 0.6}, ErrorAuto: 0.3},
		{Fabric: "shm", Modes: Modes{10, 20, 30}, AutoUS: 12, Regret: 0.2, Noise: 0.04, Error: Modes{0, 0, 0}, ErrorAuto: 0},
	}
	s := Summarize(rs)
	require.Equal(t, 4, s.Cells)
	require.Equal(t, "shm", s.Fabric)
	require.InDelta(t, 0.1025, s.MeanRegret, 1e-12)
	require.InDelta(t, 0.2, s.P95Regret, 1e-12)
	require.InDelta(t, 0.2, s.MaxRegret, 1e-12)
	require.InDelta(t, 0.5, s.Within10pct, 1e-12, "0.11 is too much, whatever the noise")
	require.InDelta(t, 0.045, s.MeanChoosing, 1e-12)
	require.InDelta(t, 0.1, s.MaxChoosing, 1e-12)
	require.InDelta(t, 0.2, s.MaxVsEager, 1e-12)
	require.InDelta(t, 0.015, s.MedianNoise, 1e-12)
	// Without the mixed one: 0 0 0 .1 .1 .2 .3 .3 .4 .5 .6
	require.InDelta(t, 0.2, s.MedianAbsPredictionError, 1e-12)
	require.InDelta(t, 0.15, s.PerMode.Eager, 1e-12)
	require.InDelta(t, 0.2, s.PerMode.Gather, 1e-12)
	require.InDelta(t, 0.5, s.PerMode.Scatter, 1e-12)
	require.InDelta(t, 0.15, s.Auto, 1e-12)
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	x := []float64{5, 1, 4, 2, 3}
	require.Equal(t, 3.0, Quantile(x, 0.5))
	require.Equal(t, 5.0, Quantile(x, 1))
	require.Equal(t, 5.0, Quantile(x, 0.95))
	require.Equal(t, 4.0, Quantile(x, 0.8))
	require.Equal(t, 1.0, Quantile(x, 0))
	require.Equal(t, 3.0, Quantile([]float64{5, 1, 4, 2}, 0.5), "the middle of two")
	require.Equal(t, []float64{5, 1, 4, 2, 3}, x, "not sorted in place")
}

func TestLinesCarryTheContract(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := NewWriter(&b, "json")
	r := Result{Fabric: "tcp", N: 4, Mix: "4K", Plan: "eager×4", plans: [3]string{"eager×4"}, Predicted: Modes{1, 2, 3}, PredictedAuto: 1,
		Series: Series{Eager: fixed(1), Gather: fixed(2), Scatter: fixed(3), Auto: fixed(1.5), Again: fixed(1), AgainOf: "eager"}}
	r.fill()
	r.plans = [3]string{} // not written
	require.NoError(t, w.Write(r))
	s := Summarize([]Result{r})
	require.NoError(t, w.Close(s))
	ls := strings.Split(strings.TrimSpace(b.String()), "\n")
	require.Len(t, ls, 2)
	var cell, sum map[string]any
	require.NoError(t, json.Unmarshal([]byte(ls[0]), &cell))
	require.NoError(t, json.Unmarshal([]byte(ls[1]), &sum))
	for _, k := range []string{"fabric", "n", "mix", "modes", "auto_us", "plan", "regret", "regret_95", "choosing", "noise", "series_us"} {
		require.Contains(t, cell, k)
	}
	for _, m := range []string{"eager", "gather", "scatter"} {
		require.Contains(t, cell["modes"], m)
	}
	for _, k := range []string{"cells", "mean_regret", "p95_regret", "max_regret", "within10pct", "median_abs_prediction_error"} {
		require.Contains(t, sum, k)
	}
	rs, ss, err := Read(&b)
	require.NoError(t, err)
	require.Equal(t, []Result{r}, rs)
	require.Equal(t, []Summary{s}, ss)
	for _, bad := range []string{"x", "{}", `{"fabric":"shm"}`, `[1]`} {
		_, _, err := Read(strings.NewReader(bad))
		require.Error(t, err, bad)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := NewWriter(&b, "table")
	r := Result{Fabric: "tcp", N: 4, Mix: "4K", Plan: "eager×4", plans: [3]string{"eager×4"}, Predicted: Modes{1, 2, 3}, PredictedAuto: 1,
		Series: Series{Eager: fixed(1), Gather: fixed(2), Scatter: fixed(3), Auto: fixed(1.5), Again: fixed(1), AgainOf: "eager"}}
	r.fill()
	r.plans = [3]string{} // not written
	require.NoError(t, w.Write(r))
	require.NoError(t, w.Close(Summarize([]Result{r})))
	require.Contains(t, b.String(), "+50.0%")
	require.Contains(t, b.String(), "eager×4")
	require.Contains(t, b.String(), "1 cells")
	require.NotContains(t, b.String(), "gain over")

	b.Reset()
	w = NewWriter(&b, "table")
	r.Series.Thresholds = fixed(3)
	r.fill()
	require.NoError(t, w.Write(r))
	sum := Summarize([]Result{r})
	require.NoError(t, w.Close(sum))
	require.Equal(t, &Gain{1, 1, 1, 1}, sum.OverTable)
	require.Regexp(t, `(?s)auto µs +table µs +gain +regret.* 1\.50 +3\.00 +\+100\.0% +\+50\.0%`, b.String())
	require.Contains(t, b.String(), "gain over the table +100.0 %")
}

func TestPlanText(t *testing.T) {
	t.Parallel()
	p := logp.Plan{Parts: []logp.Part{
		{Mode: logp.Scatter, Messages: []int32{1}}, {Mode: logp.Gather, Messages: []int32{2, 3}}, {Mode: logp.Gather, Messages: []int32{0}},
	}}
	require.Equal(t, "scatter×1 + gather×3 in 2", planText(&p))
}

func TestExplanationText(t *testing.T) {
	t.Parallel()
	x := Explanation{Fabric: "shm", Messages: 2, Bytes: 128, Plan: "gather×2", Reason: "because", Ways: []Way{
		{Name: "eager", PredictUS: 3, Terms: map[string]float64{"soft": 1, "send": 2}, MeasuredUS: 2},
		{Name: "gather", Err: "too large"},
	}}
	var b bytes.Buffer
	require.NoError(t, x.WriteText(&b))
	for _, want := range []string{"soft", "send", "predicted", "cannot", "+50%", "gather: too large", "plan: gather×2"} {
		require.Contains(t, b.String(), want)
	}
	require.NotContains(t, b.String(), "hard")
}

func TestAblationArithmetic(t *testing.T) {
	t.Parallel()
	a := Ablation{Fabric: "shm", Study: "arrival", Batch: "1x8", Variants: []string{"lap", "cursor"}, US: []float64{2, 3}}
	a.fill(2.2)
	require.Equal(t, []float64{1, 1.5}, a.Ratio)
	require.InDelta(t, 0.1, a.Noise, 1e-12)
	var b bytes.Buffer
	require.NoError(t, WriteAblations(&b, []Ablation{a}))
	require.Contains(t, b.String(), "cursor 3.00 (1.50)")
	b.Reset()
	require.NoError(t, bench.WriteLines(&b, []Ablation{a, a}))
	require.Equal(t, 2, strings.Count(b.String(), "\n"))
}

func TestStudiesAreWellFormed(t *testing.T) {
	t.Parallel()
	for _, lap := range []bool{false, true} {
		rows := len(rendezvousSizes)
		for _, s := range studies(lap) {
			require.NotEmpty(t, s.variants)
			for _, v := range s.variants {
				require.NotNil(t, v.set)
			}
			for _, b := range s.batches {
				_, err := ParseBatch(b)
				require.NoError(t, err)
				rows++
			}
		}
		require.Equal(t, AblationRows(), rows, "the same over every link")
	}
}

func TestGridsOfPieces(t *testing.T) {
	t.Parallel()
	g := DefaultPieces()
	require.NoError(t, g.Check())
	require.Len(t, g.Cells(1), 8*7*3)
	require.Contains(t, g.Cells(1), Cell{N: 64, Mix: "64", Layout: Spread})
	small, err := ParseGrid("small", true)
	require.NoError(t, err)
	require.Len(t, small.Cells(1), 12)
	for op, g := range map[string]Grid{OpMessage: small, OpPut: {N: []int{2}, Mixes: []string{"8"}, Layouts: []string{"heap"}}, "send": Small()} {
		r := Request{Op: op, Grid: g}
		require.ErrorIs(t, r.Check(), ErrGrid, op)
	}
	for _, r := range []Request{{Op: OpGet, Grid: small, Mixing: true}, {Op: OpPut, Ablate: true}, {Op: OpPut, Curves: []int{1}}} {
		require.ErrorIs(t, r.Check(), ErrGrid)
	}
	r := Request{Op: OpPut, Batch: []int{64}}
	require.NoError(t, r.Check())
}

func TestPiecesArithmetic(t *testing.T) {
	t.Parallel()
	r := PiecesResult{Fabric: "tcp", Op: OpPut, N: 64, Size: "64", Layout: Scattered, Groups: 1, Predicted: Ways{15, 9}, PredictedAuto: 9,
		Series: PiecesSeries{Chain: fixed(20), Group: fixed(10), Auto: fixed(10.5), Again: fixed(10.5), AgainOf: "group", Each: fixed(30)}}
	r.fill()
	require.Equal(t, Ways{20, 10}, r.Ways)
	require.InDelta(t, 30, r.EachUS, 1e-12)
	require.Equal(t, "group", r.Best)
	require.InDelta(t, 0.05, r.Regret, 1e-12)
	require.Equal(t, Interval{r.Regret, r.Regret}, r.Regret95)
	require.InDelta(t, 0.05, r.Noise, 1e-12)
	require.InDelta(t, -0.25, r.Error.Chain, 1e-12)
	require.InDelta(t, -0.1, r.Error.Group, 1e-12)
	alone := PiecesResult{Ways: Ways{10, 10}, AutoUS: 20, Regret: 1, Error: Ways{0.5, 7}} // no groups: their prediction does not count
	s := SummarizePieces([]PiecesResult{r, alone})
	require.InDelta(t, 0.525, s.MeanRegret, 1e-12)
	require.InDelta(t, 0.5, s.Within10pct, 1e-12)
	require.InDelta(t, 1, s.MaxVsChain, 1e-12)
	require.InDelta(t, 1.05, (1+s.MeanVsChain)*(1+s.MeanVsChain), 1e-9)
	require.InDelta(t, 0.25, s.MedianAbsPredictionError, 1e-12)
	var b bytes.Buffer
	w := NewPiecesWriter(&b, "table")
	require.NoError(t, w.Write(r))
	require.NoError(t, w.Close(s))
	require.Contains(t, b.String(), "+5.0%")
	require.Contains(t, b.String(), "tcp, put: 2 cells")
}
