package report

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/overlap"
)

// besideFigure is a plot of the latency of an operation over the number of goroutines, streams
// or threads that run meanwhile.
type besideFigure struct {
	what, op, beside string
	size             int
}

// besideAxes says for each kind of result what its number counts.
var besideAxes = map[string]string{
	"reactivity": "computing goroutines for each processor of the target",
	"threads":    "other goroutines of each rank",
	"concurrent": "streams of rank 0",
	"load":       "computing threads of another process",
}

func (f besideFigure) name() string {
	s := f.what + "-" + f.op
	if f.beside != "" {
		s += "-" + f.beside
	}
	if f.size > 0 {
		s += "-" + strconv.Itoa(f.size)
	}
	return s
}

func (f besideFigure) title() string {
	s := f.what + ": " + f.op
	if f.beside != "" {
		s += " beside " + f.beside
	}
	if f.size > 0 {
		s += " of " + bench.FormatSize(f.size)
	}
	return s
}

// besidePoint is one number of a curve, with medians over the rounds in µs.
type besidePoint struct {
	count    int
	mid, p99 float64 // mid is the mean of load, otherwise the median
}

// besideCurve is a link of a library, with load also a value of RMA_SPIN, and with reactivity a
// gap between operations.
type besideCurve struct {
	name   string
	points []besidePoint // by count
}

// curvesOf returns the curves of the results of one figure.
func curvesOf(rs []overlap.Result) (out []besideCurve) {
	for name, rs := range bench.GroupBy(rs, besideSeries) {
		c := besideCurve{name: name}
		for n, rounds := range bench.GroupBy(rs, func(r *overlap.Result) int { return r.Count }) {
			q := besidePoint{count: n}
			q.mid, _, _ = bench.Range(rounds, func(r *overlap.Result) float64 {
				if r.What == "load" {
					return r.Mean
				}
				return r.P50
			})
			q.p99, _, _ = bench.Range(rounds, func(r *overlap.Result) float64 { return r.P99 })
			c.points = append(c.points, q)
		}
		slices.SortFunc(c.points, func(a, b besidePoint) int { return cmp.Compare(a.count, b.count) })
		out = append(out, c)
	}
	return out
}

// besideSeries names the curve of a result.
func besideSeries(r *overlap.Result) string {
	name := overlapSeries(r)
	if r.What == "load" {
		name += ", RMA_SPIN: " + r.Spin
	}
	if r.Gap > 0 {
		name += ", gap: " + time.Duration(r.Gap*1e3).String()
	}
	return name
}

func figureOf(r *overlap.Result) besideFigure { return besideFigure{r.What, r.Op, r.Beside, r.Size} }

// BesidePlots draws the latencies of operations on ranks that compute, wait or send meanwhile:
// a figure for each operation and kind of other work, with a solid curve for each link of
// a library and a dashed one of its 99th percentiles. Results of transfers beside computation,
// see [OverlapPlots], are skipped, as are figures without a positive time.
func BesidePlots(rs []overlap.Result) ([]Plot, error) {
	rs = slices.DeleteFunc(slices.Clone(rs), func(r overlap.Result) bool { return besideAxes[r.What] == "" })
	var names []string // in the order of the figures, for colours
	for _, own := range bench.GroupBy(rs, figureOf) {
		for name := range bench.GroupBy(own, besideSeries) {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	var out []*drawing
	for f, own := range bench.GroupBy(rs, figureOf) {
		out = append(out, f.draw(curvesOf(own), names))
	}
	return render(out...)
}

// draw returns nil if there is nothing to draw.
func (f besideFigure) draw(curves []besideCurve, names []string) *drawing {
	middle := "median"
	if f.what == "load" {
		middle = "mean"
	}
	p := newDrawing(f.name(), f.title(), besideAxes[f.what], "µs: "+middle+"; dashed: p99")
	var counts []int // labels at equal distances: they are such as 0, 1, 16, 128
	for _, c := range curves {
		for _, q := range c.points {
			counts = append(counts, q.count)
		}
	}
	slices.Sort(counts)
	counts = slices.Compact(counts)
	p.X.Tick.Marker, p.Y.Scale, p.Y.Tick.Marker = labels(counts, strconv.Itoa), plot.LogScale{}, decades{}
	p.Add(lines{})
	lo, hi := math.Inf(1), 0.0
	for _, c := range curves {
		t := trace{name: c.name, color: overlapColor(slices.Index(names, c.name), c.name), width: 1.5, radius: 2}
		for _, q := range c.points {
			if x := float64(slices.Index(counts, q.count)); q.mid > 0 {
				t.points = append(t.points, plotter.XY{X: x, Y: q.mid})
				t.dashed = append(t.dashed, plotter.XY{X: x, Y: max(q.mid, q.p99)}) // a mean may exceed it
				lo, hi = min(lo, q.mid), max(hi, q.mid, q.p99)
			}
		}
		p.add(t)
	}
	if hi == 0 {
		return nil
	}
	p.X.Min, p.X.Max = -0.3, float64(len(counts))-0.7
	p.Y.Min, p.Y.Max = lo/1.5, hi*4
	legend(p.Plot)
	return p
}
