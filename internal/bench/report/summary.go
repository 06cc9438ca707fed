package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/seed33544411/rma/internal/bench"
)

// summarySizes are the sizes of the summary, if they were measured.
var summarySizes = map[bench.Test][]int{
	bench.Lat:  {8, 1 << 10, 64 << 10, 1 << 20},
	bench.BW:   {1 << 10, 64 << 10, 1 << 20, 4 << 20},
	bench.Rate: {8},
}

// WriteSummary writes the most important figures: latency, bandwidth and rate by link at a
// few sizes, in aligned columns, and the notes.
func (r *Report) WriteSummary(w io.Writer) error {
	h, cs := home(r.Results), colors(r.Results)
	var out strings.Builder
	for _, t := range tests {
		title, value := "message rate, millions a second", func(r bench.Result) float64 { return r.Mmsgs }
		switch t {
		case bench.Lat:
			title, value = "latency, median in µs (put, send: half round trip; others: full operation)", func(r bench.Result) float64 { return r.LatUS.P50 }
		case bench.BW:
			title, value = "bandwidth, MB/s (1e6 bytes)", func(r bench.Result) float64 { return r.MBs }
		}
		lines, names := byOperation(r.Results, t, h, cs)
		if len(names) == 0 {
			continue
		}
		fmt.Fprintf(&out, "\n%s\n%-6s %6s", title, "", "")
		for _, n := range names {
			fmt.Fprintf(&out, " %*s", columnWidth(n), n)
		}
		out.WriteString("\n")
		for _, op := range ops {
			for _, size := range sizesOf(lines[op], summarySizes[t]) {
				fmt.Fprintf(&out, "%-6s %6s", op, bench.FormatSize(size))
				for _, n := range names {
					cell := "–"
					for _, s := range lines[op] {
						if i := slices.IndexFunc(s.rs, func(r bench.Result) bool { return r.Size == size }); s.name == n && i >= 0 {
							cell = number(value(s.rs[i]))
						}
					}
					fmt.Fprintf(&out, " %*s", columnWidth(n), cell)
				}
				out.WriteString("\n")
			}
		}
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&out, "\n%s\n", n)
	}
	_, err := io.WriteString(w, strings.TrimPrefix(out.String(), "\n"))
	return err
}

func columnWidth(name string) int { return max(9, len(name)) }

// sizesOf returns the wanted sizes that were measured; if there are none, the smallest and
// the largest measured.
func sizesOf(ss []series, wanted []int) []int {
	var all []int
	for _, s := range ss {
		for _, r := range s.rs {
			all = append(all, r.Size)
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	if some := slices.DeleteFunc(slices.Clone(all), func(n int) bool { return !slices.Contains(wanted, n) }); len(some) > 0 {
		return some
	}
	if len(all) > 2 {
		all = []int{all[0], all[len(all)-1]}
	}
	return all
}
