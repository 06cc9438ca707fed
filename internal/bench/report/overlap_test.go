package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/bench/overlap"
)

func overlaps() (rs []overlap.Result) {
	for round := range 3 {
		for _, who := range overlap.OverlapWho {
			for _, lib := range []string{"", "openmpi"} {
				for _, f := range []float64{4, 1, 2} {
					rs = append(rs, overlap.Result{
						What: "overlap", Fabric: "shm", Library: lib, Round: round, Op: "message", Size: 1 << 20, Who: who, Factor: f,
						Comm: 80, Compute: 80 * f, Total: 90 * f, Ratio: 0.5 + float64(round)/10, Samples: 9,
					})
				}
			}
		}
	}
	return rs
}

func TestOverlapSection(t *testing.T) {
	t.Parallel()
	r := &Report{Overlaps: overlaps()}
	plots, err := OverlapPlots(r.Overlaps)
	require.NoError(t, err)
	var names []string
	for _, p := range plots {
		names = append(names, p.Name)
		wellFormed(t, p.SVG)
		for _, want := range []string{"openmpi, shm", "all is hidden", "message of 1M"} {
			require.Contains(t, string(p.SVG), want)
		}
	}
	require.Equal(t, []string{"overlap-message-1048576-sender", "overlap-message-1048576-receiver", "overlap-message-1048576-both"}, names)
	var page, lines bytes.Buffer
	require.NoError(t, r.WriteHTML(&page))
	require.Equal(t, 1, strings.Count(page.String(), "Communication during computation"))
	require.Contains(t, page.String(), `id="overlap-message-1048576-both"`)
	require.Contains(t, page.String(), "openmpi")
	require.NoError(t, r.WriteLines(&lines))
	var again Report
	require.NoError(t, again.Add(&lines))
	require.Equal(t, r.Overlaps, again.Overlaps)
	require.Error(t, again.Add(strings.NewReader(`{"what":"other","fabric":"tcp"}`)))
	require.Error(t, again.Add(strings.NewReader(`{"what":"overlap"}`)))

	page.Reset()
	require.NoError(t, full().WriteHTML(&page))
	require.NotContains(t, page.String(), "Communication during computation")
}
