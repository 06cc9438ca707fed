package sockets

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/seed33544411/rma/internal/bench"
)

// point identifies series that differ in their round and transport only.
type point struct {
	busy     int
	workload string
	conns    int
}

// WriteText writes results as a table of medians over the rounds, with the ratio of a socket's
// figure to that of the transport of rmanet that replaces it, and the ratio's range over the
// rounds.
func WriteText(w io.Writer, rs []Result) error {
	rs = slices.SortedStableFunc(slices.Values(rs), func(a, b Result) int { return a.Busy - b.Busy })
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "busy\tworkload\tconns\ttransport\tµs/op\tp50\tp99\tCPU µs/op\tMB/s\tspeed\trange\tCPU\trange\t")
	for k, rs := range bench.GroupBy(rs, func(r *Result) point { return point{r.Busy, r.Workload, r.Conns} }) {
		of := maps.Collect(bench.GroupBy(rs, func(r *Result) string { return r.Transport }))
		for i, name := range Transports {
			series := of[name]
			if len(series) == 0 {
				continue
			}
			fmt.Fprintf(t, "%d\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t", k.busy, k.workload, k.conns, name,
				median(series, (*Result).PerOp), median(series, func(r *Result) float64 { return r.P50 }),
				median(series, func(r *Result) float64 { return r.P99 }), median(series, (*Result).CPUPerOp), rate(series))
			if overRma(name) && i+1 < len(Transports) {
				socket := of[Transports[i+1]]
				fmt.Fprintf(t, "%s\t%s\t", ratio(socket, series, (*Result).PerOp), ratio(series, socket, (*Result).CPUPerOp))
			} else {
				fmt.Fprint(t, "\t\t\t\t")
			}
			fmt.Fprintln(t)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprint(w, `
Medians over the rounds; CPU of both processes. speed: time of the socket in the next line
divided by that of rmanet in the same round, above 1 rmanet is faster. The second CPU:
rmanet's processor time divided by the socket's, below 1 rmanet needs less.
`)
	return err
}

// median formats the median of a time of the series.
func median(rs []Result, of func(*Result) float64) string {
	m, _, _ := bench.Range(rs, of)
	return bench.ThreeDigits(m)
}

// ratio returns the median of a's figure divided by b's, of the same rounds, and its range.
func ratio(a, b []Result, of func(*Result) float64) string {
	var vs []float64
	for i := range a {
		for j := range b {
			if a[i].Round == b[j].Round {
				vs = append(vs, of(&a[i])/of(&b[j]))
			}
		}
	}
	if len(vs) == 0 {
		return "\t"
	}
	return fmt.Sprintf("%.2f\t%.2f–%.2f", bench.Median(vs), slices.Min(vs), slices.Max(vs))
}

// rate returns the bandwidth of a stream, else nothing.
func rate(rs []Result) string {
	if rs[0].Bytes == 0 {
		return ""
	}
	mbs, _, _ := bench.Range(rs, func(r *Result) float64 { return float64(r.Bytes) / r.PerOp() })
	return fmt.Sprintf("%.0f", mbs)
}
