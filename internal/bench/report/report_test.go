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
	"github.com/seed33544411/rma/internal/bench/choice"
)

func sweep(fabric, virtual, label string, base float64) []bench.Result {
	var rs []bench.Result
	m := bench.Machine{CPU: "Example CPU", CPUs: 2, OS: "linux", Kernel: "6.1.0", Go: "go1.26", Virtual: virtual, TimerNS: base}
	for _, t := range []bench.Test{bench.Lat, bench.BW} {
		for _, op := range []bench.Op{bench.Put, bench.Get} {
			for size := 8; size <= 4<<20; size *= 2 {
				l := base + float64(size)/10000
				rs = append(rs, bench.Result{Test: t, Op: op, Fabric: fabric, Size: size, Iters: 100, Label: label, Machine: m,
					LatUS: bench.Latency{Min: l * 0.9, P50: l, P90: l * 1.1, P99: l * 1.5, P999: l * 3, Max: l * 100, Mean: l}, MBs: float64(size) / l, Mmsgs: 1 / l})
			}
		}
	}
	for i, op := range []bench.Op{bench.Put, bench.Get, bench.FAdd, bench.CAS} {
		rs = append(rs, bench.Result{Test: bench.Rate, Op: op, Fabric: fabric, Size: 8, Iters: 100, Label: label, Machine: m,
			LatUS: bench.Latency{Min: 1, P50: 2, P99: 3, Max: 4}, Mmsgs: 3 / base / float64(i+1), MBs: 24})
	}
	return rs
}

func full() *Report {
	rs := append(sweep("shm", "KVM", "", 0.15), sweep("tcp", "KVM", "", 3.2)...)
	rs = append(rs, sweep("verbs", "user mode linux", "", 9)...)
	return &Report{Results: rs, When: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Notes: []string{"a <b>note</b>"}}
}

// wellFormed reads all of an XML text.
func wellFormed(t *testing.T, b []byte) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(b))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
	}
}

func TestPlots(t *testing.T) {
	t.Parallel()
	r := full()
	plots, err := r.Plots()
	require.NoError(t, err)
	var names []string
	for _, p := range plots {
		names = append(names, p.Name)
		wellFormed(t, p.SVG)
		s := string(p.SVG)
		require.True(t, strings.HasPrefix(s, "<svg"), p.Name)
		for _, want := range []string{"shm", "tcp", "verbs (user mode linux)", "#0072B2", "#D55E00", "#009E73"} {
			require.Contains(t, s, want, p.Name)
		}
	}
	require.Equal(t, []string{"lat-put", "lat-get", "bw-put", "bw-get", "rate"}, names)
	again, err := r.Plots()
	require.NoError(t, err)
	require.Equal(t, plots, again, "the same results give the same picture")
}

func TestPageStandsAlone(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	require.NoError(t, full().WriteHTML(&b))
	s := b.String()
	require.Equal(t, 5, strings.Count(s, "<svg"))
	for _, not := range []string{"<script", "src=", "@import", "url(", "ZgotmplZ", "<b>note</b>"} {
		require.NotContains(t, s, not)
	}
	for _, want := range []string{"2026-01-02 03:04 UTC", "a &lt;b&gt;note", "Example CPU", "user mode linux", "lat put, half round trip", "4M", "rate cas"} {
		require.Contains(t, s, want)
	}
}

// Labels may come from untrusted files.
func TestHostileText(t *testing.T) {
	t.Parallel()
	evil := `"></svg><script>alert(1)</script>&<`
	r := &Report{Results: sweep("shm", "", evil, 1)}
	var b bytes.Buffer
	require.NoError(t, r.WriteHTML(&b))
	require.NotContains(t, b.String(), "<script>")
	plots, err := r.Plots()
	require.NoError(t, err)
	for _, p := range plots {
		wellFormed(t, p.SVG)
	}
}

func TestLittleToShow(t *testing.T) {
	t.Parallel()
	one := bench.Result{Test: bench.Lat, Op: bench.Put, Fabric: "shm", Size: 8, LatUS: bench.Latency{P50: 1, P99: 2}}
	zero := bench.Result{Test: bench.BW, Op: bench.Put, Fabric: "shm", Size: 8}
	zero2 := zero
	zero2.Size = 16
	for _, rs := range [][]bench.Result{nil, {one}, {zero, zero2}, {{Test: bench.Rate, Op: bench.CAS, Fabric: "x", Size: 8}}} {
		r := &Report{Results: rs}
		plots, err := r.Plots()
		require.NoError(t, err)
		require.Empty(t, plots)
		require.NoError(t, r.WriteHTML(io.Discard))
	}
	for _, v := range []float64{1e-12, 1e12} { // the bounds of figures that are read back
		a, b := one, one
		a.LatUS.P50, b.LatUS.P50, b.LatUS.P99, b.Size = v, 1, 1e12, 1<<30
		plots, err := (&Report{Results: []bench.Result{a, b}}).Plots()
		require.NoError(t, err)
		require.Len(t, plots, 1)
	}
}

func TestSeriesAreToldApart(t *testing.T) {
	t.Parallel()
	rs := append(sweep("tcp", "", "", 1), sweep("tcp", "", "a to b", 2)...)
	rs = append(rs, sweep("tcp", "KVM", "", 3)[:3]...)
	cs := colors(rs)
	require.Len(t, cs, 3)
	require.Equal(t, fabricColors["tcp"], cs["tcp"])
	require.NotEqual(t, cs["tcp a to b"], cs["tcp (KVM)"])
	ss := split(rs, bench.Lat, bench.Put, home(rs), cs)
	require.Len(t, ss, 3)
	require.Equal(t, "tcp (KVM)", seriesName(rs[len(rs)-1], home(rs)))
	require.Equal(t, "tcp (bare metal)", seriesName(rs[0], "KVM"))
}

// Runs over one fabric have maps of their own, whether they measured the same cells or not.
func TestRunsOfTheChoiceAreToldApart(t *testing.T) {
	t.Parallel()
	cell := func(fabric, mix string, regret float64) choice.Result {
		return choice.Result{Fabric: fabric, N: 8, Mix: mix, Regret: regret, Plan: "eager", Best: "eager"}
	}
	sum := func(fabric string, cells int, mean float64) choice.Summary {
		return choice.Summary{Fabric: fabric, Cells: cells, Regrets: choice.Regrets{MeanRegret: mean}}
	}
	rs := []choice.Result{cell("shm", "64", 0.11), cell("shm", "4K", 0.12), cell("shm", "1M", 0.13), cell("shm", "64", 0.14), cell("shm", "64", 0.15), cell("tcp", "64", 0.16)}
	ss := []choice.Summary{sum("shm", 2, 0.21), sum("tcp", 1, 0.22), sum("shm", 2, 0.23)}
	var got []string
	for _, s := range choiceSections(rs, ss) {
		for _, row := range s.Maps[0].Rows {
			got = append(got, s.Title+" "+row.Mix+" "+row.Cells[0].Text)
		}
		for _, l := range s.Lines {
			got = append(got, l[:strings.Index(l, " in the mean")])
		}
	}
	require.Equal(t, []string{
		"shm, run 1 64 11", "shm, run 1 4K 12", "2 cells: regret 21.0 %",
		"shm, run 2 1M 13", "shm, run 2 64 14", "2 cells: regret 23.0 %",
		"shm, run 3 64 15", // of a run that was interrupted
		"tcp 64 16", "1 cells: regret 22.0 %",
	}, got)
}

func TestMedianRound(t *testing.T) {
	t.Parallel()
	var rs []bench.Result
	for i, v := range []float64{5, 1, 9, 3, 100} {
		rs = append(rs, bench.Result{Test: bench.Lat, Round: i, LatUS: bench.Latency{P50: v}})
	}
	require.Equal(t, 5.0, median(rs).LatUS.P50)
	require.Equal(t, 0, rs[0].Round, "not reordered")
	require.Equal(t, 3.0, median(rs[:2:2]).LatUS.P50+2)
}

func TestTicks(t *testing.T) {
	t.Parallel()
	n, last := 0, ""
	for _, k := range (sizeTicks{}).Ticks(7, 5<<20) {
		require.Equal(t, k.Value, math.Exp2(math.Round(math.Log2(k.Value))))
		if k.Label != "" {
			n, last = n+1, k.Label
		}
	}
	require.True(t, n >= 5 && n <= 12, "%d labels", n)
	require.Equal(t, "2M", last)
	labels := ""
	for _, k := range (decades{}).Ticks(0.1, 100) {
		labels += k.Label + " "
	}
	require.Contains(t, labels, "0.1 ")
	require.Contains(t, labels, "100 ")
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{0: "0", -1: "0", 0.1: "0.1", 0.01234: "0.0123", 1: "1", 12.345: "12.3", 999.6: "1000", 123456: "123456", 10: "10", 1000: "1000"} {
		require.Equal(t, want, number(v))
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	r := full()
	r.Results = append(r.Results, sweep("tcp", "KVM", "", 9)[0]) // of one size alone: the median is the round before
	var b strings.Builder
	require.NoError(t, r.WriteSummary(&b))
	require.Less(t, strings.Count(b.String(), "\n"), 40, "what fits on a screen")
	require.Contains(t, b.String(), `
                    shm       tcp verbs (user mode linux)
put         8     0.151       3.2                       9
`)
	require.Contains(t, b.String(), "get        1M")
	require.Contains(t, b.String(), "bandwidth, MB/s")
	require.Contains(t, b.String(), "cas         8         5     0.234")
	require.True(t, strings.HasSuffix(b.String(), "\na <b>note</b>\n"))

	// Other sizes: the smallest and the largest measured; a dash for missing figures.
	few := &Report{Results: []bench.Result{
		{Test: bench.Lat, Op: bench.Put, Fabric: "shm", Size: 16, LatUS: bench.Latency{P50: 1}},
		{Test: bench.Lat, Op: bench.Put, Fabric: "shm", Size: 32, LatUS: bench.Latency{P50: 2}},
		{Test: bench.Lat, Op: bench.Put, Fabric: "tcp", Size: 48, LatUS: bench.Latency{P50: 3}},
	}}
	b.Reset()
	require.NoError(t, few.WriteSummary(&b))
	require.Contains(t, b.String(), "put        16         1         –\nput        48         –         3\n")
	b.Reset()
	require.NoError(t, (&Report{}).WriteSummary(&b))
	require.Empty(t, b.String())
}
