package report

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/bench"
)

// Lines of rmabench become figures whose curves are medians over rounds, by number.
func TestBesideSection(t *testing.T) {
	t.Parallel()
	lines, err := os.ReadFile("testdata/beside.jsonl")
	require.NoError(t, err)
	var r Report
	require.NoError(t, r.Add(bytes.NewReader(lines)))

	for _, want := range []struct {
		name, title, axis string
		curves            []besideCurve
	}{
		{"reactivity-get", "reactivity: get", "computing goroutines", []besideCurve{
			{"tcp", []besidePoint{{0, 7, 40}, {1, 30, 200}, {8, 1000, 40000}}},
			{"tcp, gap: 1ms", []besidePoint{{8, 150, 900}}},
			{"openmpi, tcp", []besidePoint{{0, 9, 20}, {8, 20000, 90000}}},
		}},
		{"threads-put-signals", "threads: put beside signals", "other goroutines", []besideCurve{
			{"shm", []besidePoint{{0, 0.15, 0.3}, {128, 0.2, 9}}},
		}},
		{"concurrent-ping-messages-65536", "concurrent: ping beside messages of 64K", "streams", []besideCurve{
			{"shm", []besidePoint{{0, 0.5, 1}, {4, 12, 90}}},
		}},
		{"load-barrier", "load: barrier", "computing threads", []besideCurve{
			{"shm, RMA_SPIN: default", []besidePoint{{0, 2, 3}, {1, 34, 4}}},
			{"shm, RMA_SPIN: -1", []besidePoint{{1, 2.9, 5}}},
		}},
	} {
		plots, err := BesidePlots(r.Overlaps)
		require.NoError(t, err)
		require.Len(t, plots, 4)
		found := false
		for _, p := range plots {
			if p.Name != want.name {
				continue
			}
			found = true
			wellFormed(t, p.SVG)
			text := string(p.SVG)
			for _, s := range []string{want.title, want.axis} {
				require.Contains(t, text, s)
			}
			for _, c := range want.curves {
				require.Contains(t, text, ">"+c.name+"</text>")
			}
		}
		require.True(t, found, want.name)
		for f, own := range bench.GroupBy(r.Overlaps, figureOf) {
			if f.name() == want.name {
				require.Equal(t, want.curves, curvesOf(own))
			}
		}
	}

	none, err := OverlapPlots(r.Overlaps)
	require.NoError(t, err)
	require.Empty(t, none)
	var page, again bytes.Buffer
	require.NoError(t, r.WriteHTML(&page))
	require.Equal(t, 1, strings.Count(page.String(), "Latency beside other work"))
	require.Contains(t, page.String(), `id="load-barrier"`)
	require.Contains(t, page.String(), "goroutines/core", "the table")
	require.NotContains(t, page.String(), "Communication during computation")
	require.NoError(t, r.WriteLines(&again))
	require.Equal(t, string(lines), again.String())

	for i := range r.Overlaps {
		r.Overlaps[i].P50, r.Overlaps[i].Mean = 0, 0
	}
	plots, err := BesidePlots(r.Overlaps)
	require.NoError(t, err)
	require.Empty(t, plots, "no time is positive")
	plots, err = BesidePlots(overlaps())
	require.NoError(t, err)
	require.Empty(t, plots)
}
