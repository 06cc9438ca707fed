package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/bench/collective"
)

func TestHiddenSection(t *testing.T) {
	t.Parallel()
	var hs []collective.Hidden
	for round := range 3 {
		for _, h := range []collective.Hidden{{Progress: "default"}, {Progress: "placed"}, {Peer: "openmpi"}} {
			for _, op := range []string{"allreduce", "scan"} {
				for _, size := range []int{64 << 10, 1 << 20} {
					h.What, h.Op, h.Size, h.Ranks, h.Fabric, h.Round = collective.NBC, op, size, 4, "shm", round
					h.Pure, h.CPU, h.Both, h.Overlap = 10, 10, 12, float64(70+10*round)
					hs = append(hs, h)
				}
			}
		}
	}
	r := &Report{Hidden: hs}
	plots, err := HiddenPlots(hs)
	require.NoError(t, err)
	require.Len(t, plots, 3)
	for i, series := range []string{"rma, default", "rma, placed", "openmpi"} {
		wellFormed(t, plots[i].SVG)
		text := string(plots[i].SVG)
		for _, want := range []string{series + ": hidden", "by 4 ranks over shm", "allreduce", "scan", "64K", "1M"} {
			require.Contains(t, text, want)
		}
		require.Equal(t, 4, strings.Count(text, ">80</text>"), "the median of each cell")
	}
	var page, lines bytes.Buffer
	require.NoError(t, r.WriteHTML(&page))
	require.Contains(t, page.String(), `id="nbc-4-shm-2"`)
	require.Equal(t, 1, strings.Count(page.String(), "Collective operations during computation"))
	require.NoError(t, r.WriteLines(&lines))
	var again Report
	require.NoError(t, again.Add(&lines))
	require.Equal(t, hs, again.Hidden)
	require.Error(t, again.Add(strings.NewReader(`{"what":"nbc"}`)))

	page.Reset()
	require.NoError(t, full().WriteHTML(&page))
	require.NotContains(t, page.String(), "Collective operations during computation")
}
