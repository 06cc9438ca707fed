package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/compare"
)

func comparedRows() []compare.Row {
	m := bench.Machine{CPU: "Example", CPUs: 2, OS: "linux", Kernel: "6.1", Go: "go1.26"}
	return []compare.Row{
		{Peer: "ucx", Fabric: "shm", Test: compare.Lat, Size: 8, Ours: 0.4, Theirs: 0.34, Ratio: 0.85, RatioMin: 0.8, RatioMax: 1.1, Rounds: 3, Unit: "µs", OursCPU: 800, TheirsCPU: 680, Machine: m},
		{Peer: "net", Fabric: "shm", Test: compare.Lat, Size: 8, Ours: 0.4, Theirs: 9, Ratio: 22.5, RatioMin: 20, RatioMax: 30, Rounds: 3, Unit: "µs", OursCPU: 800, TheirsCPU: 9000, Machine: m},
		{Peer: "gone", Fabric: "shm", Test: compare.Lat, Size: 8, Failed: 1, Why: "<b>crash</b>", Machine: m},
		{Peer: "ucx", Fabric: "tcp", Test: compare.PutBW, Size: 1 << 20, Ours: 4000, Theirs: 4000, Ratio: 1, RatioMin: 1, RatioMax: 1, Rounds: 1, Unit: "MB/s", Machine: m},
	}
}

func TestComparePlots(t *testing.T) {
	t.Parallel()
	plots, err := ComparePlots(comparedRows())
	require.NoError(t, err)
	var names []string
	for _, p := range plots {
		names = append(names, p.Name)
		d := xml.NewDecoder(bytes.NewReader(p.SVG))
		for {
			if _, err = d.Token(); err != nil {
				break
			}
		}
		require.True(t, errors.Is(err, io.EOF), "%s: %v", p.Name, err)
	}
	require.Equal(t, []string{"shm-lat-8", "shm-lat-8-cpu", "tcp-putbw-1048576"}, names, "no figure of processor time that nobody knows")
	require.Contains(t, string(plots[0].SVG), ">22.5<")
	require.Contains(t, string(plots[0].SVG), ">0.85<")
	require.NotContains(t, string(plots[0].SVG), "gone")
	require.Contains(t, string(plots[1].SVG), ">11.2<")

	bad := comparedRows()
	bad[0].Ratio, bad[0].TheirsCPU, bad[1].RatioMax = math.Inf(1), math.NaN(), math.NaN()
	_, err = ComparePlots(bad)
	require.NoError(t, err)
	plots, err = ComparePlots(nil)
	require.NoError(t, err)
	require.Empty(t, plots)
}

func TestComparePageStandsAlone(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	require.NoError(t, WriteCompare(&b, comparedRows(), time.Unix(0, 0)))
	page := b.String()
	for _, want := range []string{"<svg", "not measured", "0.85", "&lt;b&gt;crash", "1970-01-01", "Example"} {
		require.Contains(t, page, want)
	}
	for _, no := range []string{"<script", "src=", "href=\"http", "<b>crash"} {
		require.NotContains(t, page, no)
	}
	require.Equal(t, 1, strings.Count(page, "Example &middot;"), "one machine")
}
