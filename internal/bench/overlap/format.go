package overlap

import (
	"cmp"
	"fmt"
	"io"

	"github.com/seed33544411/rma/internal/bench"
)

// point identifies results that differ in their round only.
type point struct {
	what, fabric, library, op, who, beside, spin string
	size, count                                  int
	factor, gap                                  float64
}

// WriteText writes results as tables of medians over the rounds with their spread.
func WriteText(w io.Writer, rs []Result) error {
	what := ""
	for k, rounds := range bench.GroupBy(rs, func(r *Result) point {
		return point{r.What, r.Fabric, cmp.Or(r.Library, "rma"), r.Op, r.Who, r.Beside, r.Spin, r.Size, r.Count, r.Factor, r.Gap}
	}) {
		if k.what != what {
			what = k.what
			if _, err := io.WriteString(w, heads[what]); err != nil {
				return err
			}
		}
		if err := k.line(w, rounds); err != nil {
			return err
		}
	}
	return nil
}

var heads = map[string]string{
	"overlap":    "fabric  library      op       computes  size    compute/comm   comm us  compute us   total us  ratio  (min-max)    bound  imb %\n",
	"reactivity": "fabric  library      op          goroutines/core   gap us    p50 us      p99 us      max us   slowed %   (p50 min-max)\n",
	"threads":    "fabric  library      op    others     beside     mean us     p50 us      p99 us      max us   (p50 min-max)\n",
	"concurrent": "fabric  library      op    streams  of        size        p50 us      p99 us      max us   (p50 min-max)      streams MB/s\n",
	"load":       "fabric  op            busy     spin     mean us      p50 us      p99 us      max us   (mean min-max)\n",
}

func (k point) line(w io.Writer, rs []Result) error {
	med := func(f func(*Result) float64) (m, lo, hi float64) { return bench.Range(rs, f) }
	p50, lo, hi := med(func(r *Result) float64 { return r.P50 })
	mean, least, greatest := med(func(r *Result) float64 { return r.Mean })
	p99, _, _ := med(func(r *Result) float64 { return r.P99 })
	_, _, most := med(func(r *Result) float64 { return r.Max })
	var err error
	switch k.what {
	case "overlap":
		ratio, lo, hi := med(func(r *Result) float64 { return r.Ratio })
		comm, _, _ := med(func(r *Result) float64 { return r.Comm })
		compute, _, _ := med(func(r *Result) float64 { return r.Compute })
		total, _, _ := med(func(r *Result) float64 { return r.Total })
		bound, _, _ := med(func(r *Result) float64 { return r.Bound })
		imb, _, _ := med(func(r *Result) float64 { return r.IMB })
		_, err = fmt.Fprintf(w, "%-7s %-12s %-8s %-9s %-7s %12.3g %9.1f %11.1f %10.1f %6.2f  (%.2f-%.2f)  %5.2f %6.0f\n",
			k.fabric, k.library, k.op, k.who, bench.FormatSize(k.size), k.factor, comm, compute, total, ratio, lo, hi, bound, imb)
	case "reactivity":
		slowed := "-"
		if k.library == "rma" && k.count > 0 {
			x, _, _ := med(func(r *Result) float64 { return r.Slowed })
			slowed = fmt.Sprintf("%.1f", x)
		}
		_, err = fmt.Fprintf(w, "%-7s %-12s %-11s %15d %8.0f %9.2f %11.1f %11.1f %10s   (%.2f-%.2f)\n", k.fabric, k.library, k.op, k.count, k.gap, p50, p99, most, slowed, lo, hi)
	case "threads":
		// Beside threads that take a processor for long, p50 counts the operations between, so the mean is shown.
		_, err = fmt.Fprintf(w, "%-7s %-12s %-5s %6d  %-9s %9.2f %10.2f %11.1f %11.1f   (%.2f-%.2f)\n", k.fabric, k.library, k.op, k.count, k.beside, mean, p50, p99, most, lo, hi)
	case "concurrent":
		mbs, _, _ := med(func(r *Result) float64 { return r.MBs })
		_, err = fmt.Fprintf(w, "%-7s %-12s %-5s %7d  %-9s %-7s %10.2f %11.1f %11.1f   %-20s %10.0f\n",
			k.fabric, k.library, k.op, k.count, k.beside, bench.FormatSize(k.size), p50, p99, most, fmt.Sprintf("(%.2f-%.2f)", lo, hi), mbs)
	case "load":
		_, err = fmt.Fprintf(w, "%-7s %-11s %6d  %7s %11.2f %11.2f %11.1f %11.1f   (%.2f-%.2f)\n", k.fabric, k.op, k.count, k.spin, mean, p50, p99, most, least, greatest)
	}
	return err
}
