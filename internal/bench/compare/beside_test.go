package compare

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/bench/overlap"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestParseBeside(t *testing.T) {
	t.Parallel()
	point := overlap.Result{What: "threads", Op: "put", Beside: "sends", Count: 3}
	for out, ok := range map[string]bool{
		"threads put sends 3 0 2.5 1 9 70 120 0\n":             true,
		"a warning\nthreads put sends 3 0 2.5 1 9 70 120 0\nx": true,
		"":                                     false,
		"threads put sends 3 0 2.5 1 9 70 120": false,
		"threads put messages 3 0 2.5 1 9 70 120 0": false,
		"threads ping sends 3 0 2.5 1 9 70 120 0":   false,
		"threads put sends 4 0 2.5 1 9 70 120 0":    false,
		"threads put sends 3 0 0 1 9 70 120 0":      false,
		"threads put sends 3 0 nan 1 9 70 120 0":    false,
		"threads put sends 3 0 2.5 10 9 70 120 0":   false,
		"threads put sends 3 0 2.5 1 99 70 120 0":   false,
		"threads put sends 3 0 2.5 1 9 70 0 0":      false,
		"threads put sends 3 0 2.5 1 9 70 1e30 0":   false,
	} {
		x := point
		err := parseBeside([]byte(out), &x)
		if !ok {
			require.ErrorIs(t, err, ErrOutput, "%q", out)
			require.Equal(t, point, x)
			continue
		}
		require.NoError(t, err, "%q", out)
		want := point
		want.Mean, want.P50, want.P99, want.Max, want.Samples = 2.5, 1, 9, 70, 120
		require.Equal(t, want, x)
	}
}

// As many threads compute as goroutines of this library's target do, however many processors the
// machine has.
func TestBesideComputesOnGosProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	x := overlap.Result{What: "reactivity", Op: "get", Count: 8}
	require.Equal(t, []string{"reactivity", "get", "-", "8", "0", "50", "3"}, besideRun(&x, "50"))
	source, err := sources.ReadFile("csrc/beside.c")
	require.NoError(t, err)
	require.NotContains(t, string(source), "NPROCESSORS")
}

// The first library that is installed measures every kind of point but waits for signals, the
// others one of each kind of work: the program is the same.
func TestBesideOfPeersInstalledHere(t *testing.T) {
	needProc(t)
	if testing.Short() {
		t.Skip("starts other libraries' programs")
	}
	every := true
	for _, l := range mpiLibraries[:2] { // the third is the second with a progress thread
		ctx := testutil.Context(t, testutil.Limit)
		b, err := NewOverlap(ctx, "beside", "shm", []string{l.name})
		if err != nil {
			require.ErrorIs(t, err, ErrMissing)
			t.Log(err)
			continue
		}
		some := func(all []string) []string {
			if every {
				return all
			}
			return all[len(all)-1:]
		}
		for _, req := range []overlap.Request{
			{What: "reactivity", Ops: some(overlap.ReactivityOps), Counts: []int{0}},
			{What: "threads", Beside: some(overlap.ThreadsBeside), Counts: []int{1}},
			{What: "concurrent", Beside: some(overlap.Streams), Sizes: []int{100_000}, Counts: []int{1}},
		} {
			req.Rounds, req.Time = 1, time.Microsecond
			if req.What == "concurrent" {
				req.Time = 20 * time.Millisecond // in which streams get a processor
			}
			var rs []overlap.Result
			require.NoError(t, b.Round(ctx, &req, 3, func(r overlap.Result) error { rs = append(rs, r); return nil }))
			require.Len(t, rs, b.Points(&req))
			streamed := 0.0
			for _, r := range rs {
				require.NotEqual(t, "signals", r.Beside)
				require.Equal(t, l.name, r.Library)
				require.Equal(t, 3, r.Round)
				require.Positive(t, r.P50)
				streamed += r.MBs
			}
			require.Equal(t, req.What == "concurrent", streamed > 0)
		}
		every = false
		require.NoError(t, b.Close())
		require.NoDirExists(t, b.dir.Path)
	}
}
