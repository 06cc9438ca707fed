package overlap

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/jobtest"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// Every point of a request gives a consistent result.
func TestRun(t *testing.T) {
	for _, fabric := range []string{"shm", "tcp"} {
		t.Run(fabric, func(t *testing.T) {
			es := jobtest.Open(t, 2, fabric)
			ctx := testutil.Context(t, testutil.Limit)
			for _, req := range []Request{
				{What: "overlap", Ops: OverlapOps, Who: OverlapWho, Sizes: []int{100_000}, Ratios: []float64{0.5}},
				{What: "reactivity", Ops: ReactivityOps, Counts: []int{0}},
				{What: "reactivity", Ops: []string{"get"}, Counts: []int{1}},
				{What: "reactivity", Ops: []string{"get"}, Counts: []int{0}, Gap: time.Millisecond},
				{What: "threads", Beside: ThreadsBeside, Counts: []int{3}},
				{What: "concurrent", Beside: Streams, Sizes: []int{8, 70_000}, Counts: []int{0, 2}},
				{What: "load", Ops: LoadOps, Counts: []int{0}, Spins: []string{SpinDefault}},
			} {
				req.Rounds, req.Time = 2, time.Millisecond
				var got []Result
				var g errgroup.Group
				g.Go(func() error { return Run(ctx, es[1], Request{}, nil) }) // rank 0's request counts
				g.Go(func() error {
					return Run(ctx, es[0], req, func(r Result) error { got = append(got, r); return nil })
				})
				require.NoError(t, g.Wait())
				require.Len(t, got, req.Points())
				streamed := 0.0
				for _, r := range got {
					require.Equal(t, fabric, r.Fabric)
					require.Equal(t, req.What, r.What)
					require.Equal(t, float64(req.Gap.Microseconds()), r.Gap)
					require.Positive(t, r.Samples)
					if req.What == "overlap" {
						require.Positive(t, r.Comm)
						require.Positive(t, r.Compute)
						require.InEpsilon(t, r.Total/(r.Comm+r.Compute), r.Ratio, 1e-9)
						require.GreaterOrEqual(t, r.Bound, 0.499)
						require.LessOrEqual(t, r.Bound, 1.0)
						continue
					}
					require.Positive(t, r.P50)
					streamed += r.MBs
					if r.Count == 0 {
						require.Zero(t, r.MBs)
						require.Zero(t, r.Slowed)
					}
					require.LessOrEqual(t, r.Slowed, 100.0)
					require.LessOrEqual(t, r.P50, r.P99)
					require.LessOrEqual(t, r.P99, r.Max)
					require.Positive(t, r.Mean)
					require.LessOrEqual(t, r.Mean, r.Max)
				}
				require.Equal(t, req.What == "concurrent", streamed > 0)
				for format, write := range map[string]func(io.Writer, []Result) error{"table": WriteText, "json": bench.WriteLines[Result]} {
					var b bytes.Buffer
					require.NoError(t, write(&b, got))
					lines := strings.Count(b.String(), "\n")
					if format == "json" {
						require.Equal(t, len(got), lines)
						var r Result
						require.NoError(t, json.NewDecoder(&b).Decode(&r))
						require.Equal(t, got[0], r)
					} else {
						require.Equal(t, len(got)/req.Rounds+1, lines, "%s", b.String())
					}
				}
			}
		})
	}
}

func TestFill(t *testing.T) {
	r := Result{Who: "sender"}
	r.fill(1000, 2000, 2400, 0, 4)
	require.InDelta(t, 0.8, r.Ratio, 1e-9)
	require.InDelta(t, 60, r.IMB, 1e-9) // 600 of 1000 are hidden
	require.InDelta(t, 2./3, r.Bound, 1e-9)
	r.fill(1000, 1000, 1000, 0, 2)
	require.InDelta(t, 0.5, r.Ratio, 1e-9)
	require.InDelta(t, 100, r.IMB, 1e-9)
	r.fill(1000, 1000, 2000, 4000, 2) // the copies alone take both processors as long as that
	require.InDelta(t, 1, r.Bound, 1e-9)
	require.Zero(t, r.IMB)
	r.Who = "both"
	r.fill(1000, 1000, 1000, 0, 1) // one processor computes for both
	require.InDelta(t, 1, r.Bound, 1e-9)
	r.fill(1000, 1000, 1000, 0, 2)
	require.InDelta(t, 0.5, r.Bound, 1e-9)
}

func TestCheck(t *testing.T) {
	good := map[string]Request{
		"overlap":    {What: "overlap", Ops: []string{"get"}, Who: []string{"both"}, Sizes: []int{8}, Ratios: []float64{1}},
		"reactivity": {What: "reactivity", Ops: []string{"handler"}, Counts: []int{8}},
		"threads":    {What: "threads", Beside: []string{"sends"}, Counts: []int{128}},
		"concurrent": {What: "concurrent", Beside: []string{"puts", "gets"}, Sizes: []int{1 << 20}, Counts: []int{0, 4}},
		"load":       {What: "load", Ops: []string{"barrier"}, Counts: []int{2}, Spins: []string{SpinDefault, "-1", "48"}},
	}
	for what, ok := range good {
		ok.Rounds, ok.Time = 1, time.Second
		require.NoError(t, ok.Check())
		require.Equal(t, map[string]int{"overlap": 1, "reactivity": 1, "threads": 2, "concurrent": 8, "load": 3}[what], ok.Points())
		for i, spoil := range []func(r *Request){
			func(r *Request) { r.What = "all" },
			func(r *Request) { r.Rounds = 0 },
			func(r *Request) { r.Time = -1 },
			func(r *Request) { r.Ops, r.Beside = []string{"swap"}, []string{"sleeps"} },
			func(r *Request) { r.Ops, r.Beside = nil, nil },
			func(r *Request) { r.Sizes, r.Counts, r.Spins = nil, []int{-1}, nil },
			func(r *Request) { r.Sizes, r.Counts, r.Spins = nil, []int{1 << 20}, []string{"fast"} },
			func(r *Request) { r.Sizes, r.Counts = []int{0}, []int{-1} },
			func(r *Request) { r.Sizes, r.Counts = nil, nil },
			func(r *Request) { r.Ratios, r.Counts = []float64{math.NaN()}, []int{1 << 20} },
			func(r *Request) { r.Sizes, r.Counts, r.Spins = []int{256<<20 + 1}, []int{1025}, nil },
		} {
			bad := ok
			spoil(&bad)
			require.ErrorIs(t, bad.Check(), ErrRequest, "%s %d", what, i)
		}
	}
}

func TestCheckGap(t *testing.T) {
	r := Request{What: "reactivity", Ops: []string{"get"}, Counts: []int{0}, Rounds: 1, Time: time.Second}
	for gap, ok := range map[time.Duration]bool{-1: false, 0: true, mostGap: true, mostGap + 1: false} {
		if r.Gap = gap; ok {
			require.NoError(t, r.Check())
		} else {
			require.ErrorContains(t, r.Check(), "gap")
			require.ErrorIs(t, r.Check(), ErrRequest)
		}
	}
}

// A gap is before each operation, and none of the times contains it.
func TestGapsAreNotLatencies(t *testing.T) {
	const gap = 20 * time.Millisecond
	r := Result{Gap: float64(gap.Microseconds())}
	var last time.Time
	require.NoError(t, r.samples(5, 5, 0, func() error {
		require.GreaterOrEqual(t, time.Since(last), gap)
		last = time.Now()
		return nil
	}))
	require.Equal(t, 5, r.Samples)
	require.Less(t, r.P50, float64(gap.Microseconds()), "of a function that does nothing")
	require.LessOrEqual(t, r.P50, r.Max)
	require.LessOrEqual(t, r.Mean, r.Max)
	require.NoError(t, r.samples(3, 9, gap, func() error { return nil }))
	require.Equal(t, 3, r.Samples, "the time of a series contains the gaps")
}

// Results with different gaps are different points.
func TestTableOfGaps(t *testing.T) {
	var b strings.Builder
	rs := []Result{{What: "reactivity", Fabric: "shm", Op: "get", P50: 1}, {What: "reactivity", Fabric: "shm", Op: "get", Gap: 1000, P50: 3}}
	require.NoError(t, WriteText(&b, rs))
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	require.Len(t, lines, 3)
	require.Contains(t, lines[0], "gap us")
	require.Equal(t, []string{"0", "1.00"}, strings.Fields(lines[1])[4:6])
	require.Equal(t, []string{"1000", "3.00"}, strings.Fields(lines[2])[4:6])
}

// The rate of a computation is that of the time in which it is asked for.
func TestRate(t *testing.T) {
	h := startHog(1, func() {})
	some, err := h.rate(func() error {
		had := h.done.Load()
		testutil.Eventually(t, testutil.Limit, func() bool { return h.done.Load() > had+10 }, "some work")
		return nil
	})
	require.NoError(t, err)
	require.Positive(t, some)
	h.end()
	none, err := h.rate(func() error { return io.EOF })
	require.ErrorIs(t, err, io.EOF)
	require.Zero(t, none)

	var b strings.Builder
	r := Result{What: "reactivity", Fabric: "shm", Op: "get", Slowed: 12.34}
	idle, peer := r, r
	r.Count, peer.Count, peer.Library = 1, 1, "mpich"
	require.NoError(t, WriteText(&b, []Result{idle, r, peer}))
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	for i, want := range []string{"-", "12.3", "-"} {
		require.Equal(t, want, strings.Fields(lines[i+1])[8])
	}
}

// The duration of work is proportional to its length: it is not optimised away.
func TestWork(t *testing.T) {
	per := Calibrate()
	require.Greater(t, per, 0.01)
	require.Less(t, per, 100.0)
}

// A busy thread is one more that runs, until the end.
func TestBusy(t *testing.T) {
	was := runtime.GOMAXPROCS(0)
	before := sink.Load()
	end := Busy(1)
	require.Equal(t, was+1, runtime.GOMAXPROCS(0))
	testutil.Eventually(t, testutil.Limit, func() bool { return sink.Load() != before }, "work is done")
	end()
	require.Equal(t, was, runtime.GOMAXPROCS(0))
}

// The table shows the median of the rounds: of an even number, the mean of the middle two.
func TestTableOfEvenRounds(t *testing.T) {
	var b strings.Builder
	rs := []Result{{What: "reactivity", Fabric: "shm", Op: "get", P50: 1}, {What: "reactivity", Fabric: "shm", Op: "get", Round: 1, P50: 3}}
	require.NoError(t, WriteText(&b, rs))
	require.Contains(t, b.String(), " 2.00 ")
	require.Contains(t, b.String(), "(1.00-3.00)")
}
